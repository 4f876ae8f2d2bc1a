#include "base/environment.h"

#include <cstdlib>
#include <map>

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

TEST(EnvironmentTest, ABadValueIsAnErrorThatSaysWhatIsAllowed) {
  for (const auto& [name, value] : std::map<std::string, std::string>{
           {"RINGPIPE_RANK", "-1"},
           {"RINGPIPE_SIZE", "0"},
           {"RINGPIPE_TIMEOUT_MS", "soon"},
           {"RINGPIPE_DEPTH", "4x"},
           {"RINGPIPE_SUBCHUNK_BYTES", "1000"},
           {"RINGPIPE_SPIN_US", "99999999999999999999"},
           {"RINGPIPE_LOG_LEVEL", "loud"}}) {
    const auto environment = Environment::Parse(From({{name, value}}));
    ASSERT_FALSE(environment.ok()) << name;
    EXPECT_EQ(environment.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(environment.status().message().find(name + "=" + value + ": use"),
              std::string::npos)
        << environment.status().ToString();
  }
}

TEST(EnvironmentTest, AMisspeltVariableIsAnError) {
  setenv("RINGPIPE_DEVCIE", "soft", 1);
  const auto environment = Environment::FromProcess();
  unsetenv("RINGPIPE_DEVCIE");
  ASSERT_FALSE(environment.ok());
  EXPECT_NE(environment.status().message().find("RINGPIPE_DEVCIE"),
            std::string::npos);
}

}  // namespace
}  // namespace ringpipe
