// The reports of recorded machines, as people and programs get them. The files
// are what the program printed once and somebody looked at; after a wanted
// change write them anew:
//   UPDATE_GOLDEN=$PWD/info/testdata bazel-bin/info/report_test
#include "info/report.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "info/json.h"
#include "info/text.h"
#include "nlohmann/json.hpp"
#include "verbs/fake_library.h"

namespace ringpipe::info {
namespace {

constexpr char kData[] = "info/testdata/";

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file),
          std::istreambuf_iterator<char>()};
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// `text` is what the file has; with UPDATE_GOLDEN it becomes so.
void ExpectGolden(const std::string& text, const std::string& file) {
  if (const char* folder = std::getenv("UPDATE_GOLDEN")) {
    std::ofstream(std::string(folder) + "/" + file) << text;
  }
  EXPECT_EQ(text, ReadFile(kData + file)) << file;
}

class ReportTest : public testing::Test {
 protected:
  ReportTest() {
    verbs::FakePort& port = machine_.soft_device.ports[0];
    port.ethernet = true;
    port.gids = {"::ffff:192.0.2.7"};
  }
  ~ReportTest() override { EXPECT_EQ(machine_.live, 0) << "left open"; }

  Report Make() {
    const auto get = [this](std::string_view name) {
      const auto found = variables_.find(std::string(name));
      return found == variables_.end() ? std::nullopt
                                       : std::optional(found->second);
    };
    return MakeReport(
        {get,
         Environment::Parse(get),
         system_,
         machine_.soft(),
         sysfs_class_.empty() ? machine_.sysfs_class() : sysfs_class_,
         memlock_limit_bytes_,
         {},
         gpus_});
  }
  Report MakeOf(const std::string& machine) {
    machine_.AddRecorded(kData + machine);
    return Make();
  }

  verbs::FakeMachine machine_;
  Result<std::shared_ptr<const verbs::Library>> system_ = machine_.library();
  std::string sysfs_class_;
  std::map<std::string, std::string> variables_;
  std::uint64_t memlock_limit_bytes_ = RLIM_INFINITY;
  GpuReport gpus_ = {0,
                     Status(StatusCode::kUnavailable,
                            "CUDA: no driver: libcuda.so.1: no such file"),
                     Status::Ok(),
                     {}};
};

TEST_F(ReportTest, OneInfinibandHcaIsUsedByItsLid) {
  const Report report = MakeOf("infiniband_one_hca");
  EXPECT_EQ(report.exit_status(), 0);
  ExpectGolden(ToText(report), "infiniband_one_hca.txt");
  ExpectGolden(ToJson(report), "infiniband_one_hca.json");
}

TEST_F(ReportTest, TwoRoceHcasAreBothUsedByTheirRoceV2Ipv4Gids) {
  const Report report = MakeOf("roce_two_hcas");
  EXPECT_EQ(report.exit_status(), 0);
  ExpectGolden(ToText(report), "roce_two_hcas.txt");
  ExpectGolden(ToJson(report), "roce_two_hcas.json");
}

TEST_F(ReportTest, APortThatIsDownIsNamedAndTheSoftwareDeviceUsed) {
  const Report report = MakeOf("port_down");
  EXPECT_EQ(report.exit_status(), 0);
  ExpectGolden(ToText(report), "port_down.txt");
  ExpectGolden(ToJson(report), "port_down.json");
}

TEST_F(ReportTest, WithoutADeviceTheSoftwareDeviceIsUsed) {
  const Report report = Make();
  EXPECT_EQ(report.exit_status(), 0);
  ExpectGolden(ToText(report), "none.txt");
  ExpectGolden(ToJson(report), "none.json");
}

TEST_F(ReportTest, GpusAreShownByNameWithWhatKeepsThemFromBeingUsed) {
  using State = SurveyedGpu::State;
  gpus_ = {.driver_version = 12040,
           .driver = Status::Ok(),
           .none = Status::Ok(),
           .gpus = {{0, "One", 9, 0, State::kUsable, Status::Ok()},
                    {1, "Other", 12, 1, State::kExclusive,
                     Status(StatusCode::kUnavailable, "in use elsewhere")},
                    {2, "", 0, 0, State::kBroken,
                     Status(StatusCode::kDeviceError, "fell off the bus")}}};
  const Report report = Make();
  EXPECT_EQ(report.exit_status(), 0);
  ExpectGolden(ToText(report), "gpus.txt");
  ExpectGolden(ToJson(report), "gpus.json");
}

TEST_F(ReportTest, WithoutLibibverbsTheReportSaysWhyThereIsNone) {
  system_ = Status(StatusCode::kUnavailable, "libibverbs.so.1: no such file");
  const Report report = Make();
  EXPECT_EQ(report.exit_status(), 0);
  EXPECT_TRUE(Has(ToText(report), "libibverbs.so.1: no such file"));
}

TEST_F(ReportTest, AnActiveDeviceThatLibibverbsHidesIsTheErrorItWouldGive) {
  machine_.AddRecorded(std::string(kData) + "infiniband_one_hca");
  machine_.devices[0]->listed = false;  // a container without /dev/infiniband
  const Report report = Make();
  EXPECT_EQ(report.exit_status(), 1);
  const std::string text = ToText(report);
  EXPECT_TRUE(Has(text, "active (LinkUp)")) << text;
  EXPECT_TRUE(Has(text, "error         unavailable: mlx5_0")) << text;
  EXPECT_TRUE(Has(text, "--device=/dev/infiniband")) << text;
}

TEST_F(ReportTest, ADeviceThatMayNotBeOpenedIsTheErrorItWouldGive) {
  machine_.AddRecorded(std::string(kData) + "infiniband_one_hca");
  machine_.devices[0]->open_errno = EACCES;
  const Report report = Make();
  EXPECT_EQ(report.exit_status(), 1);
  EXPECT_EQ(report.usable.code(), StatusCode::kPermissionDenied);
  EXPECT_TRUE(Has(ToText(report), "EACCES"));
}

TEST_F(ReportTest, TooLittleLockedMemoryIsAnErrorWithAdvice) {
  memlock_limit_bytes_ = 64 << 10;
  const Report report = MakeOf("infiniband_one_hca");
  EXPECT_EQ(report.exit_status(), 1);
  const std::string text = ToText(report);
  EXPECT_TRUE(Has(text, "limit 64 KiB")) << text;
  EXPECT_TRUE(Has(text, "too small: registering 2359296 bytes")) << text;
  EXPECT_TRUE(Has(text, "ulimit -l unlimited")) << text;
}

TEST_F(ReportTest, TheSoftwareDeviceNeedsNoLockedMemory) {
  memlock_limit_bytes_ = 0;
  const Report report = Make();
  EXPECT_EQ(report.exit_status(), 0);
  EXPECT_EQ(report.memlock.needed_bytes, 0u);
}

TEST_F(ReportTest, RanksOfOneHostShareMemoryUnlessTheyAreToldNotTo) {
  EXPECT_TRUE(
      Has(ToText(Make()), "one host      ranks of one host share memory"));
  variables_ = {{"RINGPIPE_HOST_MEMORY", "never"}};
  EXPECT_TRUE(Has(ToText(Make()), "like others: RINGPIPE_HOST_MEMORY=never"));
  variables_ = {{"RINGPIPE_DEVICE", "soft"}};
  EXPECT_TRUE(Has(ToText(Make()), "like others: RINGPIPE_DEVICE=soft"));
  variables_ = {{"NCCL_IB_HCA", "mlx5_0"}};
  machine_.AddRecorded(std::string(kData) + "infiniband_one_hca");
  EXPECT_TRUE(Make().host_memory.used);
}

TEST_F(ReportTest, VariablesThatAreSetAreShownButNeverTheSecret) {
  variables_ = {{"RINGPIPE_SECRET", "swordfish"},
                {"NCCL_IB_HCA", "=mlx5_1"},
                {"NCCL_IB_GID_INDEX", "1"}};
  const Report report = MakeOf("roce_two_hcas");
  EXPECT_EQ(report.exit_status(), 0);
  for (const std::string& text : {ToText(report), ToJson(report)}) {
    EXPECT_FALSE(Has(text, "swordfish")) << text;
    EXPECT_TRUE(Has(text, "RINGPIPE_SECRET"));
    EXPECT_TRUE(Has(text, "NCCL_IB_HCA==mlx5_1 asks for it")) << text;
    EXPECT_TRUE(Has(text, "NCCL_IB_HCA==mlx5_1 does not name it")) << text;
  }
  ASSERT_EQ(report.used.size(), 1u);
  EXPECT_EQ(report.used[0].gid_index, 1);
}

TEST_F(ReportTest, AVariableThatCannotBeParsedIsTheErrorItWouldGive) {
  variables_ = {{"NCCL_IB_GID_INDEX", "three"}};
  const Report report = MakeOf("roce_two_hcas");
  EXPECT_EQ(report.exit_status(), 1);
  EXPECT_TRUE(Has(ToText(report), "NCCL_IB_GID_INDEX=three: use"));
  EXPECT_EQ(report.devices.size(), 2u);
}

TEST_F(ReportTest, AGidThatIsNotThereIsTheErrorItWouldGive) {
  variables_ = {{"RINGPIPE_GID_INDEX", "9"}};
  const Report report = MakeOf("roce_two_hcas");
  EXPECT_EQ(report.exit_status(), 1);
  EXPECT_TRUE(Has(report.usable.message(), "RINGPIPE_GID_INDEX=9"));
  EXPECT_TRUE(Has(report.usable.message(), "192.168.10.11"));
}

TEST_F(ReportTest, JsonIsOneObjectWhateverBytesAVariableHas) {
  variables_ = {{"RINGPIPE_HOST_ID", "\xff\"\n"}};
  const auto json = nlohmann::json::parse(ToJson(Make()));
  EXPECT_TRUE(json["error"].is_null());
  EXPECT_TRUE(json["would_use"][0]["software"].get<bool>());
}

}  // namespace
}  // namespace ringpipe::info
