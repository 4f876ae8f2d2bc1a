#include "engine/clock_offset.h"

#include <vector>

#include "gtest/gtest.h"

namespace ringpipe {
namespace {

TEST(ClockOffsetTest, LiesBetweenTheBoundsOfTheBestStep) {
  // The other clock is 1'000'000 ahead. In the second step both ranks were
  // quick.
  const std::vector<ClockSample> reference = {{100, 900}, {2000, 2060}};
  const std::vector<ClockSample> other = {{1'000'500, 1'000'800},
                                          {1'002'010, 1'002'050}};
  const ClockOffset offset = EstimateOffset(reference, other);
  EXPECT_NEAR(static_cast<double>(offset.offset_ns), 1e6,
              static_cast<double>(offset.error_ns));
  EXPECT_EQ(offset.error_ns, 50);
}

TEST(ClockOffsetTest, OfAClockThatIsBehindIsNegative) {
  const std::vector<ClockSample> reference = {{1'000'000, 1'000'010}};
  const std::vector<ClockSample> other = {{500'000, 500'010}};
  const ClockOffset offset = EstimateOffset(reference, other);
  EXPECT_EQ(offset.offset_ns, -500'000);
  EXPECT_EQ(offset.error_ns, 10);
}

TEST(ClockOffsetTest, IsExactlyZeroWhereTheClocksMayBeTheSame) {
  const std::vector<ClockSample> reference = {{1000, 1100}};
  const std::vector<ClockSample> other = {{1020, 1180}};
  const ClockOffset offset = EstimateOffset(reference, other);
  EXPECT_EQ(offset.offset_ns, 0);
  EXPECT_EQ(offset.error_ns, 0);
}

}  // namespace
}  // namespace ringpipe
