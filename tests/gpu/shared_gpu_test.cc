// Ranks of a host that use one GPU though another one is left are told so,
// once; others hear nothing. On the fake driver, whose FAKE_CUDA_DEVICES GPUs
// (1 or 2) all ranks see; they are threads.
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/test_device.h"
#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

using std::chrono::seconds;

bool HasTwoGpus() {
  const char* const gpus = std::getenv("FAKE_CUDA_DEVICES");
  return gpus != nullptr && std::string_view(gpus) == "2";
}

// Makes three calls on memory of that GPU.
Status MakeCalls(Communicator& communicator, int gpu) {
  constexpr std::size_t kCount = 5000;
  RINGPIPE_ASSIGN_OR_RETURN(const auto device, TestDevice::Open(gpu));
  RINGPIPE_ASSIGN_OR_RETURN(void* const buffer,
                            device->Allocate(kCount * sizeof(float)));
  const std::vector<float> ones(kCount, 1);
  Status status = device->Copy(buffer, ones.data(), kCount * sizeof(float));
  for (const std::size_t count : {kCount, kCount / 2, kCount / 2}) {
    if (status.ok()) {
      status = communicator.Run({.collective = Collective::kAllReduce,
                                 .send = buffer,
                                 .receive = buffer,
                                 .count = count,
                                 .type = DataType::kFloat32,
                                 .timeout = seconds(60)});
    }
  }
  device->Free(buffer);
  return status;
}

// What ranks that use these GPUs are told: "RANK: WARNING".
std::vector<std::string> WarningsOf(const std::vector<int>& gpus) {
  std::mutex mutex;
  std::vector<std::string> warnings;
  ExpectRanks(
      Way::kHostMemory, static_cast<int>(gpus.size()),
      [&](Communicator& c) { return MakeCalls(c, gpus[c.rank()]); },
      [&](int rank, CommunicatorOptions& options) {
        options.environment.log_level = LogLevel::kWarning;
        options.log = [&, rank](LogLevel /*level*/, std::string_view line) {
          const std::lock_guard lock(mutex);
          warnings.push_back(std::to_string(rank) + ": " + std::string(line));
        };
      });
  return warnings;
}

TEST(SharedGpuTest, RanksThatShareOneOfTwoGpusAreToldOnceByTheirFirst) {
  if (!HasTwoGpus()) {
    GTEST_SKIP() << "needs two GPUs";
  }
  const std::vector<std::string> warnings = WarningsOf({1, 1, 1});
  ASSERT_EQ(warnings.size(), 1U);
  for (const char* part :
       {"0: ", "ranks 0 to 2 of this host use the same GPU, which is cuda:1",
        "1 of the 2 GPUs", "LOCAL_RANK"}) {
    EXPECT_NE(warnings[0].find(part), std::string::npos) << warnings[0];
  }
}

TEST(SharedGpuTest, WhereEachRankHasItsGpuNothingIsSaid) {
  if (!HasTwoGpus()) {
    GTEST_SKIP() << "needs two GPUs";
  }
  EXPECT_EQ(WarningsOf({0, 1}), std::vector<std::string>());
  EXPECT_EQ(WarningsOf({1, 0}), std::vector<std::string>());
}

TEST(SharedGpuTest, WhereAllGpusAreUsedNothingIsSaid) {
  EXPECT_EQ(
      WarningsOf(HasTwoGpus() ? std::vector{0, 0, 1, 1} : std::vector{0, 0, 0}),
      std::vector<std::string>());
}

TEST(SharedGpuTest, OfOneRankNothingIsSaid) {
  EXPECT_EQ(WarningsOf({0}), std::vector<std::string>());
}

}  // namespace
}  // namespace ringpipe::testing
