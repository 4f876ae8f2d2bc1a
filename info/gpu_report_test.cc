// What is reported of a driver and its GPUs: on the fake driver, which behaves
// as a test's variables say. They are for the child process; this one never
// loads it.
#include "info/gpu_report.h"

#include <chrono>
#include <cstdlib>
#include <map>
#include <string>

#include "cuda/cuda_driver.h"
#include "gtest/gtest.h"

namespace ringpipe::info {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using State = SurveyedGpu::State;

class GpuReportTest : public testing::Test {
 protected:
  void TearDown() override {
    for (const auto& [name, value] : set_) {
      unsetenv(name.c_str());
    }
    EXPECT_FALSE(CudaDriver::Loaded()) << "in this process";
  }

  void Set(const std::string& name, const std::string& value) {
    set_[name] = value;
    setenv(name.c_str(), value.c_str(), 1);
  }
  static void ExpectHas(const Status& status, const std::string& part) {
    EXPECT_NE(status.message().find(part), std::string::npos)
        << status.ToString();
  }
  static void ExpectGpu(const SurveyedGpu& gpu, State state,
                        const std::string& part) {
    EXPECT_EQ(GpuStateName(gpu.state), std::string(GpuStateName(state)));
    EXPECT_EQ(gpu.usable.ok(), state == State::kUsable);
    ExpectHas(gpu.usable, part);
    EXPECT_NE(gpu.name, "");
    EXPECT_EQ(gpu.major, 9);
  }
  // With `fail` as FAKE_CUDA_FAIL. The driver must not have hung.
  GpuReport Failing(const std::string& fail) {
    Set("FAKE_CUDA_FAIL", fail);
    return AskAboutGpus(seconds(100));
  }

  std::map<std::string, std::string> set_;
};

TEST_F(GpuReportTest, SaysWhichGpusThereAreAndThatTheyAreUsable) {
  const GpuReport report = AskAboutGpus(seconds(100));
  EXPECT_TRUE(report.driver.ok()) << report.driver.ToString();
  EXPECT_TRUE(report.none.ok());
  EXPECT_EQ(report.driver_version, 12000);
  ASSERT_EQ(report.gpus.size(), 2U);
  for (int ordinal = 0; ordinal < 2; ++ordinal) {
    const SurveyedGpu& gpu = report.gpus[ordinal];
    ExpectGpu(gpu, State::kUsable, "");
    EXPECT_EQ(gpu.ordinal, ordinal);
    EXPECT_EQ(gpu.name.find("fake GPU " + std::to_string(ordinal)), 0U);
    EXPECT_EQ(gpu.minor, 0);
  }
  EXPECT_TRUE(report.usable());
}

TEST_F(GpuReportTest, ADriverWithoutAGpuWorks) {
  Set("FAKE_CUDA_DEVICES", "0");
  const GpuReport report = AskAboutGpus(seconds(100));
  EXPECT_TRUE(report.driver.ok()) << report.driver.ToString();
  EXPECT_EQ(report.driver_version, 12000);
  ExpectHas(report.none, "CUDA_ERROR_NO_DEVICE");
  ExpectHas(report.none, "CUDA_VISIBLE_DEVICES");
  EXPECT_TRUE(report.gpus.empty());
  EXPECT_FALSE(report.usable());
}

TEST_F(GpuReportTest, AGpuThatAnotherProcessHasInExclusiveModeIsExclusive) {
  Set("FAKE_CUDA_COMPUTE_MODE", "3");
  const GpuReport report = Failing("cuDevicePrimaryCtxRetain:2:46");
  ASSERT_EQ(report.gpus.size(), 2U);
  ExpectGpu(report.gpus[0], State::kUsable, "");
  ExpectGpu(report.gpus[1], State::kExclusive, "exclusive mode");
  EXPECT_TRUE(report.usable());
  EXPECT_TRUE(report.none.ok()) << "there are GPUs";
}

TEST_F(GpuReportTest, AGpuThatIsUnavailableOrHasNoMemoryIsBusy) {
  const GpuReport report =
      Failing("cuDevicePrimaryCtxRetain:1:46,cuDevicePrimaryCtxRetain:2:2");
  ASSERT_EQ(report.gpus.size(), 2U);
  ExpectGpu(report.gpus[0], State::kBusy, "CUDA_ERROR_DEVICE_UNAVAILABLE");
  ExpectGpu(report.gpus[1], State::kBusy, "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_FALSE(report.usable());
}

TEST_F(GpuReportTest, AGpuWhoseModeForbidsItIsProhibited) {
  Set("FAKE_CUDA_COMPUTE_MODE", "2");
  const GpuReport report = AskAboutGpus(seconds(100));
  ASSERT_EQ(report.gpus.size(), 2U);
  ExpectGpu(report.gpus[0], State::kProhibited, "nvidia-smi -c DEFAULT");
}

TEST_F(GpuReportTest, AGpuThatDoesNotTakeTheKernelsIsUnsuitable) {
  const GpuReport report = Failing("cuModuleLoadData:1:209");
  ASSERT_EQ(report.gpus.size(), 2U);
  ExpectGpu(report.gpus[0], State::kUnsuitable, "from Maxwell on");
  ExpectGpu(report.gpus[1], State::kUsable, "");
}

TEST_F(GpuReportTest, AGpuWithAnErrorIsBrokenAndTheOthersAreUsable) {
  const GpuReport report = Failing("cuDevicePrimaryCtxRetain:1:999");
  ASSERT_EQ(report.gpus.size(), 2U);
  ExpectGpu(report.gpus[0], State::kBroken, "(999)");
  ExpectGpu(report.gpus[1], State::kUsable, "");
}

TEST_F(GpuReportTest, ADriverThatDoesNotStartIsNamedWithItsVersionAndAdvice) {
  const GpuReport report = Failing("cuInit:1:803");
  EXPECT_EQ(report.driver_version, 12000);
  ExpectHas(report.driver, "(803)");
  ExpectHas(report.driver, "reboot");
  EXPECT_TRUE(report.none.ok()) << "nobody knows of GPUs";
}

TEST_F(GpuReportTest, ADriverThatHangsIsNamedInTime) {
  Set("FAKE_CUDA_FAIL", "cuInit:1:-1");
  const auto start = std::chrono::steady_clock::now();
  const GpuReport report = AskAboutGpus(milliseconds(1500));
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(20));
  ExpectHas(report.driver,
            "is broken: it has not come back from cuInit in 1 s");
}

// What was found before is in the report.
TEST_F(GpuReportTest, AGpuThatHangsIsNamedAndThoseBeforeItAreThere) {
  Set("FAKE_CUDA_FAIL", "cuDevicePrimaryCtxRetain:2:-1");
  const GpuReport report = AskAboutGpus(seconds(10));
  ExpectHas(report.driver, "from making the context of cuda:1 in 10 s");
  ASSERT_EQ(report.gpus.size(), 1U);
  ExpectGpu(report.gpus[0], State::kUsable, "");
}

TEST_F(GpuReportTest, ADriverThatCrashesIsNamed) {
  const GpuReport report = Failing("cuModuleLoadData:1:-2");
  ExpectHas(report.driver, "by signal 11 (Segmentation fault)");
  ExpectHas(report.driver, "in loading the kernels on cuda:0");
}

TEST(GpuSurveyTest, TheKernelsAreDescribedAsTheirPtxSays) {
  EXPECT_EQ(DescribeKernels(), "PTX 6.0 for compute capability 5.0");
}

}  // namespace
}  // namespace ringpipe::info
