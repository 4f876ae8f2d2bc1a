#include "bench/core_distance.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace ringpipe {
namespace {

TEST(CoreDistance, PlacementsAreToldApart) {
  EXPECT_EQ(PlacementName(50), "siblings");
  EXPECT_EQ(PlacementName(105), "one L3");
  EXPECT_EQ(PlacementName(120), "one L3");
  EXPECT_EQ(PlacementName(200), "far");
  EXPECT_EQ(PlacementName(515), "far");
  EXPECT_EQ(FormatPlacement(117.4), "one L3 117 ns");
}

TEST(CoreDistance, ARoundTripTakesLongerThanACacheHitAndLessThanASystemCall) {
  const std::vector<int> cores = UsableCores();
  if (cores.size() < 2) {
    GTEST_SKIP() << "one core alone";
  }
  const auto round_trip = CacheLineRoundTripNs(cores[0], cores[1]);
  ASSERT_TRUE(round_trip.ok()) << round_trip.status().message();
  EXPECT_GT(round_trip.value(), 10);
  EXPECT_LT(round_trip.value(), 5000);
}

TEST(CoreDistance, AThreadRunsOnOneOfItsCoresFromThenOn) {
  const std::vector<int> cores = UsableCores();
  const int number = static_cast<int>(cores.size()) + 1;
  std::thread([&] {
    EXPECT_TRUE(RunOnCore(number).ok());
    EXPECT_EQ(UsableCores(), std::vector{cores[1 % cores.size()]});
  }).join();
  EXPECT_EQ(UsableCores(), cores);
}

TEST(CoreDistance, ACoreThatIsNotThereIsAnError) {
  const auto round_trip = CacheLineRoundTripNs(UsableCores()[0], 1023);
  ASSERT_FALSE(round_trip.ok());
  EXPECT_EQ(round_trip.status().message(),
            "core 1023 does not exist, or this process may not run on it");
}

}  // namespace
}  // namespace ringpipe
