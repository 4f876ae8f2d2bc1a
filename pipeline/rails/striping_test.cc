#include "pipeline/rails/striping.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"

namespace ringpipe {
namespace {

using Pattern = std::vector<std::uint8_t>;

Pattern PatternOf(const std::vector<std::uint32_t>& speeds) {
  return StripePattern(speeds);
}

TEST(StripingTest, OneRailTakesEveryMessage) {
  EXPECT_EQ(PatternOf({100'000}), Pattern{0});
}

TEST(StripingTest, EqualRailsTakeTurns) {
  EXPECT_EQ(PatternOf({200, 200, 200}), (Pattern{0, 1, 2}));
}

TEST(StripingTest, RailsTakeMessagesInProportionToTheirSpeeds) {
  EXPECT_EQ(PatternOf({200, 100}), (Pattern{0, 1, 0}));
  const Pattern pattern = PatternOf({400, 100, 300});
  EXPECT_EQ(pattern.size(), 8U);
  EXPECT_EQ(std::count(pattern.begin(), pattern.end(), 0), 4);
  EXPECT_EQ(std::count(pattern.begin(), pattern.end(), 1), 1);
  EXPECT_EQ(std::count(pattern.begin(), pattern.end(), 2), 3);
}

TEST(StripingTest, TheFasterRailsTurnsAreSpread) {
  // Never more than two in a row for 200 against 100, around the end too.
  Pattern twice = PatternOf({200, 100});
  const Pattern once = twice;
  twice.insert(twice.end(), once.begin(), once.end());
  const Pattern three_in_a_row(3, 0);
  EXPECT_EQ(std::search(twice.begin(), twice.end(), three_in_a_row.begin(),
                        three_in_a_row.end()),
            twice.end());
}

TEST(StripingTest, SpeedsThatAreUnknownOrFarApartStillGiveEveryRailATurn) {
  EXPECT_EQ(PatternOf({0, 0}), (Pattern{0, 1}));
  const Pattern pattern = PatternOf({400'000, 10});
  EXPECT_EQ(pattern.size(), 17U);
  EXPECT_EQ(std::count(pattern.begin(), pattern.end(), 1), 1);
}

}  // namespace
}  // namespace ringpipe
