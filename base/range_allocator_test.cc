#include "base/range_allocator.h"

#include <cstdint>
#include <optional>

#include "base/pages.h"
#include "gtest/gtest.h"

namespace ringpipe {
namespace {

constexpr std::uint64_t kBegin = kPageBytes;
constexpr std::uint64_t kEnd = 4 * kHugePageBytes;

TEST(RangeAllocator, GivesWholePagesTheLowestFirst) {
  RangeAllocator ranges(kBegin, kEnd);
  EXPECT_EQ(ranges.Take(1), kBegin);
  EXPECT_EQ(ranges.Take(kPageBytes + 1), kBegin + kPageBytes);
  EXPECT_EQ(ranges.Take(1), kBegin + 3 * kPageBytes);
}

TEST(RangeAllocator, AlignsLargeRangesAndUsesWhatIsBefore) {
  RangeAllocator ranges(kBegin, kEnd);
  EXPECT_EQ(ranges.Take(kHugePageBytes), kHugePageBytes);
  EXPECT_EQ(ranges.Take(1), kBegin);
}

TEST(RangeAllocator, HasNoneForNothingAndForMoreThanThereIs) {
  RangeAllocator ranges(0, kEnd);
  EXPECT_EQ(ranges.Take(0), std::nullopt);
  EXPECT_EQ(ranges.Take(kEnd + 1), std::nullopt);
  EXPECT_EQ(ranges.Take(~std::uint64_t{0}), std::nullopt);
  EXPECT_EQ(ranges.Take(kEnd), 0u);
  EXPECT_EQ(ranges.Take(1), std::nullopt);
}

// Each order in which three neighbours can be given back.
TEST(RangeAllocator, JoinsWhatIsGivenBack) {
  const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                           {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (const auto& order : orders) {
    RangeAllocator ranges(0, 3 * kPageBytes);
    for (std::uint64_t i = 0; i < 3; ++i) {
      ASSERT_EQ(ranges.Take(kPageBytes), i * kPageBytes);
    }
    for (const int i : order) {
      ranges.Give(i * kPageBytes, kPageBytes);
    }
    EXPECT_EQ(ranges.Take(3 * kPageBytes), 0u);
  }
}

}  // namespace
}  // namespace ringpipe
