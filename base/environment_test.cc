#include "base/environment.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace ringpipe {
namespace {

Environment::Getter From(const std::map<std::string, std::string>& values) {
  return [values](std::string_view name) -> std::optional<std::string> {
    const auto it = values.find(std::string(name));
    return it == values.end() ? std::nullopt : std::optional(it->second);
  };
}

TEST(EnvironmentTest, NothingSetGivesTheDefaults) {
  const auto environment = Environment::Parse(From({}));
  ASSERT_TRUE(environment.ok());
  EXPECT_EQ(environment->timeout_ms, 60'000);
  EXPECT_EQ(environment->rank, std::nullopt);
}

TEST(EnvironmentTest, ValuesAreTaken) {
  const auto environment =
      Environment::Parse(From({{"RINGPIPE_RANK", "3"},
                               {"RINGPIPE_DEVICE", "mlx5_0:1"},
                               {"RINGPIPE_LOG_LEVEL", "debug"}}));
  ASSERT_TRUE(environment.ok());
  EXPECT_EQ(environment->rank, 3);
  EXPECT_EQ(environment->device, "mlx5_0:1");
  EXPECT_EQ(environment->log_level, LogLevel::kDebug);
}

TEST(EnvironmentTest, ACallMayHaveNoDeadlineButNotOneThatHasPassed) {
  EXPECT_EQ(
      Environment::Parse(From({{"RINGPIPE_TIMEOUT_MS", "-1"}}))->timeout_ms,
      -1);
  EXPECT_EQ(Environment::Parse(From({{"RINGPIPE_TIMEOUT_MS", "0"}}))
                .status()
                .message(),
            "RINGPIPE_TIMEOUT_MS=0: use a whole number from 1 to 86400000, or "
            "-1 for no deadline");
}

TEST(EnvironmentTest, ABadValueIsAnErrorThatSaysWhatIsAllowed) {
  for (const auto& [name, value] : std::multimap<std::string, std::string>{
           {"RINGPIPE_RANK", "-1"},
           {"RINGPIPE_SIZE", "0"},
           {"RINGPIPE_TIMEOUT_MS", "soon"},
           {"RINGPIPE_TIMEOUT_MS", "0"},
           {"RINGPIPE_TIMEOUT_MS", "-2"},
           {"RINGPIPE_JOIN_TIMEOUT_MS", "0"},
           {"RINGPIPE_DEPTH", "4x"},
           {"RINGPIPE_SUBCHUNK_BYTES", "1000"},
           {"RINGPIPE_SPIN_US", "99999999999999999999"},
           {"RINGPIPE_SERVICE_LEVEL", "16"},
           {"RINGPIPE_TRAFFIC_CLASS", "256"},
           {"RINGPIPE_QP_TIMEOUT", "0"},
           {"RINGPIPE_QP_RETRY", "8"},
           {"RINGPIPE_REGISTRATION", "sometimes"},
           {"RINGPIPE_GPU_REDUCE", "cpu"},
           {"RINGPIPE_GID_INDEX", "-2"},
           {"RINGPIPE_GID_INDEX", "256"},
           {"RINGPIPE_DEVICE", "mlx5_0:x"},
           {"RINGPIPE_SOCKET_IFNAME", "eth 0"},
           {"NCCL_IB_HCA", "^"},
           {"NCCL_IB_GID_INDEX", "three"},
           {"NCCL_SOCKET_IFNAME", "=eth0,=eth1"},
           {"RINGPIPE_LOG_LEVEL", "loud"}}) {
    const auto environment = Environment::Parse(From({{name, value}}));
    ASSERT_FALSE(environment.ok()) << name;
    EXPECT_EQ(environment.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(environment.status().message().find(name + "=" + value + ": use"),
              std::string::npos)
        << environment.status().ToString();
  }
}

TEST(EnvironmentTest, NcclsVariablesServeWhereRingpipesOwnAreNotSet) {
  const auto environment =
      Environment::Parse(From({{"NCCL_IB_HCA", "=mlx5_0,mlx5_1:2"},
                               {"NCCL_IB_GID_INDEX", "3"},
                               {"NCCL_SOCKET_IFNAME", "^docker,lo"}}));
  ASSERT_TRUE(environment.ok()) << environment.status().ToString();
  EXPECT_EQ(environment->device, "=mlx5_0,mlx5_1:2");
  EXPECT_EQ(environment->device_variable, "NCCL_IB_HCA");
  EXPECT_EQ(environment->gid_index, 3);
  EXPECT_EQ(environment->gid_index_variable, "NCCL_IB_GID_INDEX");
  EXPECT_EQ(environment->socket_interfaces, "^docker,lo");
  EXPECT_EQ(environment->socket_interfaces_variable, "NCCL_SOCKET_IFNAME");
}

TEST(EnvironmentTest, RingpipesOwnVariableWinsEvenIfItIsEmpty) {
  const auto environment =
      Environment::Parse(From({{"RINGPIPE_DEVICE", ""},
                               {"NCCL_IB_HCA", "^"},
                               {"RINGPIPE_GID_INDEX", "-1"},
                               {"NCCL_IB_GID_INDEX", "3"}}));
  ASSERT_TRUE(environment.ok()) << environment.status().ToString();
  EXPECT_EQ(environment->device, "");
  EXPECT_EQ(environment->device_variable, "RINGPIPE_DEVICE");
  EXPECT_EQ(environment->gid_index, std::nullopt);
}

// NCCL's variable names devices, whatever their names are.
TEST(EnvironmentTest, RingpipesOwnVariableAloneAsksForTheSoftwareDevice) {
  EXPECT_FALSE(Environment::Parse(From({{"RINGPIPE_DEVICE", "soft"}}))
                   ->shares_host_memory());
  EXPECT_TRUE(Environment::Parse(From({{"NCCL_IB_HCA", "soft"}}))
                  ->shares_host_memory());
}

TEST(EnvironmentTest, WhatAQueuePairIsGivenIsTaken) {
  const auto unset = Environment::Parse(From({}));
  ASSERT_TRUE(unset.ok());
  EXPECT_EQ(unset->qp_timeout, std::nullopt);
  EXPECT_EQ(unset->qp_retry, std::nullopt);
  EXPECT_EQ(unset->registration, "auto");
  const auto environment =
      Environment::Parse(From({{"RINGPIPE_SERVICE_LEVEL", "15"},
                               {"RINGPIPE_TRAFFIC_CLASS", "106"},
                               {"RINGPIPE_QP_TIMEOUT", "18"},
                               {"RINGPIPE_QP_RETRY", "0"},
                               {"RINGPIPE_REGISTRATION", "never"}}));
  ASSERT_TRUE(environment.ok()) << environment.status().ToString();
  EXPECT_EQ(environment->service_level, 15);
  EXPECT_EQ(environment->traffic_class, 106);
  EXPECT_EQ(environment->qp_timeout, 18);
  EXPECT_EQ(environment->qp_retry, 0);
  EXPECT_EQ(environment->registration, "never");
}

TEST(EnvironmentTest, EveryVariableThatIsReadIsListed) {
  std::vector<std::string_view> asked;
  const auto environment = Environment::Parse([&](std::string_view name) {
    asked.push_back(name);
    return std::optional<std::string>();
  });
  ASSERT_TRUE(environment.ok());
  std::vector<std::string_view> listed = Environment::VariableNames();
  std::sort(asked.begin(), asked.end());
  std::sort(listed.begin(), listed.end());
  EXPECT_EQ(asked, listed);
}

TEST(EnvironmentTest, AMisspeltVariableIsAnError) {
  setenv("RINGPIPE_DEVCIE", "soft", 1);
  const auto environment = Environment::FromProcess();
  unsetenv("RINGPIPE_DEVCIE");
  ASSERT_FALSE(environment.ok());
  EXPECT_NE(environment.status().message().find("RINGPIPE_DEVCIE"),
            std::string::npos);
}

// Sets a variable of this process, until its end.
class ScopedVariable {
 public:
  ScopedVariable(std::string name, const std::string& value)
      : name_(std::move(name)) {
    setenv(name_.c_str(), value.c_str(), 1);
  }
  ~ScopedVariable() { unsetenv(name_.c_str()); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const std::string name_;
};

TEST(EnvironmentTest, VariablesOfBindingsAreLeftAlone) {
  for (const char* const name :
       {"RINGPIPE_PYTHON_LIBRARY", "RINGPIPE_TORCH_TIMEOUT"}) {
    setenv(name, "1", 1);
    EXPECT_TRUE(Environment::FromProcess().ok()) << name;
    unsetenv(name);
  }
  for (const char* const name : {"RINGPIPE_PYTHON", "RINGPIPE_TORCHS_X"}) {
    setenv(name, "1", 1);
    EXPECT_FALSE(Environment::FromProcess().ok()) << name;
    unsetenv(name);
  }
}

TEST(EnvironmentTest, WhatKubernetesSetsForAServiceIsLeftAlone) {
  // `service`: ringpipe, ringpipe-root and ringpipe-soft, as it writes them.
  for (const std::string service :
       {"RINGPIPE", "RINGPIPE_ROOT", "RINGPIPE_SOFT"}) {
    for (const auto& [name, value] : std::map<std::string, std::string>{
             {"_SERVICE_HOST", "10.96.0.17"},
             {"_SERVICE_PORT", "29600"},
             {"_SERVICE_PORT_HTTP", "80"},
             {"_PORT", "tcp://10.96.0.17:29600"},
             {"_PORT_29600_TCP", "tcp://10.96.0.17:29600"},
             {"_PORT_29600_TCP_PROTO", "tcp"},
             {"_PORT_29600_TCP_PORT", "29600"},
             {"_PORT_29600_TCP_ADDR", "10.96.0.17"},
             {"_PORT_4791_UDP", "udp://[fd00::17]:4791"},
             {"_PORT_4791_UDP_ADDR", "fd00::17"}}) {
      const ScopedVariable set(service + name, value);
      const auto environment = Environment::FromProcess();
      EXPECT_TRUE(environment.ok())
          << service + name << ": " << environment.status().ToString();
    }
  }
}

TEST(EnvironmentTest, WhatOnlyLooksLikeAServiceIsAnError) {
  for (const auto& [name, value] : std::map<std::string, std::string>{
           {"RINGPIPE_SOFT_PORT", "20000-20100"},
           {"RINGPIPE_SOFT_PORTS_", "20000-20100"},
           {"RINGPIPE_ROOT_PORT", "29600"},
           {"RINGPIPE_PORT", "29600"},
           {"RINGPIPE_PORTS", "tcp://10.96.0.17:29600"},
           {"RINGPIPE_PORT_TCP", "tcp://10.96.0.17:29600"},
           {"RINGPIPE_PORT_29600_TCP_NAME", "x"},
           {"RINGPIPE_SERVICE_PORT_", "80"},
           {"RINGPIPE_SERVICE_LEVLE", "3"},
           {"RINGPIPE_SERVICE", "ringpipe"}}) {
    const ScopedVariable set(name, value);
    const auto environment = Environment::FromProcess();
    ASSERT_FALSE(environment.ok()) << name;
    EXPECT_NE(environment.status().message().find(name), std::string::npos);
  }
}

TEST(EnvironmentTest, AVariableOfItsOwnIsNeverTakenForAService) {
  for (const std::string_view name : Environment::VariableNames()) {
    if (name.starts_with("RINGPIPE_")) {
      // No variable allows this value but those that allow any text.
      const ScopedVariable set(std::string(name), "tcp://10.96.0.17:29600");
      const auto environment = Environment::FromProcess();
      EXPECT_TRUE(!environment.ok() || name == "RINGPIPE_HOST_ID" ||
                  name == "RINGPIPE_ROOT" || name == "RINGPIPE_JOB_ID" ||
                  name == "RINGPIPE_SECRET" || name == "RINGPIPE_ALGORITHM" ||
                  name == "RINGPIPE_TRACE")
          << name;
    }
  }
}

}  // namespace
}  // namespace ringpipe
