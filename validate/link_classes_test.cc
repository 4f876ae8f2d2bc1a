#include "validate/link_classes.h"

#include <vector>

#include "gtest/gtest.h"

namespace ringpipe::validate {
namespace {

// Slow links drag a median down: the healthy ones above it are then no noise.
TEST(LevelTest, IsThatOfTheFastLinksThoughMostAreSlow) {
  const std::vector<double> rates = {10.0, 9.9, 10.1, 9.95, 10.05, 10.0, 5.0,
                                     5.1,  5.0, 4.9,  5.0,  6.0,   5.1,  5.0};
  const Level level = LevelOf(rates, 0.001);
  EXPECT_NEAR(level.reference, 10, 0.1);
  EXPECT_GT(level.spread, 0.001);
  EXPECT_LT(level.spread, 0.02);
}

TEST(LevelTest, IsNoMoreCertainThanTheLinksThemselves) {
  EXPECT_EQ(LevelOf({10, 10, 10, 10, 10, 10}, 0.03).spread, 0.03);
}

TEST(LevelTest, OfFewLinksIsThatOfTheFastest) {
  EXPECT_EQ(LevelOf({10, 5, 5}, 0.01).reference, 10);
}

}  // namespace
}  // namespace ringpipe::validate
