#include "engine/gpu_sharing.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace ringpipe {
namespace {

constexpr std::uint64_t kNone = 0;
const std::vector<std::uint64_t> kTwo = {100, 101};
const std::vector<std::uint64_t> kFour = {100, 101, 102, 103};

std::string Of(int rank, const std::map<int, std::uint64_t>& gpu_of,
               const std::vector<std::uint64_t>& visible) {
  return SharedGpuWarning(rank, "cuda:0", gpu_of, visible);
}

TEST(SharedGpuWarningTest, NamesTheRanksTheGpuAndTheRemedy) {
  const std::string warning =
      Of(4, {{4, 100}, {5, 100}, {6, 100}, {9, 100}}, kFour);
  for (const char* part :
       {"ranks 4 to 6, 9 ", "cuda:0 of rank 4", "3 of the 4 GPUs", "LOCAL_RANK",
        "cudaSetDevice", "torch.cuda.set_device"}) {
    EXPECT_NE(warning.find(part), std::string::npos) << warning;
  }
}

TEST(SharedGpuWarningTest, IsOfTheFirstRankAlone) {
  const std::map<int, std::uint64_t> gpu_of = {{0, 100}, {1, 100}};
  EXPECT_NE(Of(0, gpu_of, kTwo), "");
  EXPECT_EQ(Of(1, gpu_of, kTwo), "");
}

TEST(SharedGpuWarningTest, NobodySharesAGpu) {
  EXPECT_EQ(Of(0, {{0, 100}, {1, 101}}, kFour), "");
  EXPECT_EQ(Of(0, {{0, 100}}, kFour), "");
}

// Shared on purpose, as there are no more.
TEST(SharedGpuWarningTest, NoGpuIsLeft) {
  EXPECT_EQ(Of(0, {{0, 100}, {1, 100}}, {100}), "");
  EXPECT_EQ(Of(0, {{0, 100}, {1, 101}, {2, 100}, {3, 101}}, kTwo), "");
}

// Two a GPU, in blocks: the ranks of the second one have not said so yet.
TEST(SharedGpuWarningTest, TheGpuThatIsLeftMayBeThatOfARankThatHasNotChosen) {
  EXPECT_EQ(Of(0, {{0, 100}, {1, 100}, {2, kNone}, {3, kNone}}, kTwo), "");
  EXPECT_EQ(Of(0, {{0, 100}, {1, 100}, {2, 101}, {3, kNone}}, kTwo), "");
  EXPECT_EQ(
      Of(0, {{0, 100}, {1, 100}, {2, kNone}, {3, kNone}, {4, kNone}}, kFour),
      "");
}

TEST(SharedGpuWarningTest, AGpuIsLeftWhateverTheOthersChoose) {
  EXPECT_NE(Of(0, {{0, 100}, {1, 100}, {2, kNone}, {3, kNone}}, kFour), "");
}

// The ordinals of a process begin at what CUDA_VISIBLE_DEVICES shows it.
TEST(SharedGpuWarningTest, OfWhatThisRankDoesNotSeeItSaysNothing) {
  EXPECT_EQ(Of(0, {{0, 100}, {1, 101}}, {100}), "");
  EXPECT_EQ(Of(0, {{0, 100}, {1, 100}}, {100}), "");
}

TEST(SharedGpuWarningTest, AGpuThatTheDriverDoesNotNameIsNobodys) {
  EXPECT_EQ(Of(0, {{0, kNone}, {1, kNone}}, kFour), "");
}

}  // namespace
}  // namespace ringpipe
