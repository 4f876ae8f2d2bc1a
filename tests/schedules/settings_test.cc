// The checker proves every algorithm, those of the engine included, in every
// setting.

#include <cstdint>
#include <string>
#include <vector>

#include "engine/test_name.h"
#include "gtest/gtest.h"
#include "pipeline/checker.h"

namespace ringpipe {
namespace {

using Order = CheckOptions::Order;

#ifdef NDEBUG
constexpr int kLargestSize = 16;
constexpr std::uint64_t kSeeds = 2;
#else
constexpr int kLargestSize = 8;  // with sanitizers
constexpr std::uint64_t kSeeds = 2;
#endif

class SettingsTest : public testing::TestWithParam<AlgorithmInfo> {
 protected:
  void SetUp() override {
    options_.collective = GetParam().collective;
    options_.same_bits = GetParam().same_bits;
  }

  // Checks in place and not, with each buffer reached and not, in
  // orders of all kinds.
  void ExpectProvenInAllSettings(const std::vector<Schedule>& schedules) {
    for (int bits = 0; bits < 8; ++bits) {
      options_.plan.in_place = (bits & 1) != 0;
      options_.plan.each_peer = {
          .input = (bits & 2) != 0 ? kReached : Reach(),
          .output = (bits & 4) != 0 ? kReached : Reach()};
      if (options_.plan.in_place && !GetParam().in_place) {
        continue;
      }
      for (const Order order : {Order::kEager, Order::kLazy, Order::kRandom}) {
        options_.order = order;
        for (options_.seed = 0;
             options_.seed < (order == Order::kRandom ? kSeeds : 1);
             ++options_.seed) {
          const Status status = Check(schedules, options_);
          ASSERT_TRUE(status.ok())
              << "size " << schedules.size() << ", root " << options_.root
              << ", depth " << options_.depth << ", slots " << options_.slots
              << ", setting " << bits << ", order " << static_cast<int>(order)
              << ", seed " << options_.seed << ": " << status.ToString();
        }
      }
    }
  }

  CheckOptions options_;
};

TEST_P(SettingsTest, IsProvenInEverySettingWithTheSmallestSlots) {
  for (int size = 1; size <= kLargestSize; ++size) {
    // Of the larger ones, powers of two.
    if (!Exists(GetParam(), {0, size}) || (size > 9 && size != kLargestSize)) {
      continue;
    }
    for (int root = 0;
         root < (InfoOf(GetParam().collective).is_rooted() ? size : 1);
         ++root) {
      options_.root = root;
      const std::vector<Schedule> schedules =
          SchedulesOf(GetParam().algorithm, size, root);
      for (const int depth : {1, 3}) {
        // Nothing registered, out of place: needs the most slots.
        options_.depth = depth;
        options_.plan = {};
        options_.order = Order::kEager;
        const Result<int> slots = SmallestSlots(schedules, options_);
        ASSERT_TRUE(slots.ok()) << slots.status().ToString();
        options_.slots = slots.value();
        ExpectProvenInAllSettings(schedules);
        if (HasFatalFailure()) {
          return;
        }
      }
    }
  }
}

// Whether a run gets stuck does not hang on the order in which things happen.
TEST_P(SettingsTest, OneSlotFewerDeadlocksInEveryOrder) {
  for (int size = 2; size <= kLargestSize / 2; ++size) {
    if (!Exists(GetParam(), {0, size})) {
      continue;
    }
    const std::vector<Schedule> schedules =
        SchedulesOf(GetParam().algorithm, size, 0);
    options_.depth = 2;
    options_.order = Order::kEager;
    const Result<int> slots = SmallestSlots(schedules, options_);
    ASSERT_TRUE(slots.ok()) << slots.status().ToString();
    options_.slots = slots.value() - 1;
    for (const Order order : {Order::kEager, Order::kLazy, Order::kRandom}) {
      options_.order = order;
      for (options_.seed = 0; options_.seed < kSeeds; ++options_.seed) {
        const Status status = Check(schedules, options_);
        EXPECT_EQ(status.code(), StatusCode::kResourceExhausted)
            << "size " << size << ": " << status.ToString();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SettingsTest,
                         testing::ValuesIn(Algorithms().begin(),
                                           Algorithms().end()),
                         [](const auto& test) { return TestName(test.param); });

// In place each needs values that have been overwritten.
TEST(SettingsTest, AlgorithmsThatAreNotForInPlaceAreFoundThere) {
  for (const AlgorithmInfo& algorithm : Algorithms()) {
    if (algorithm.in_place) {
      continue;
    }
    CheckOptions options;
    options.collective = algorithm.collective;
    options.plan.in_place = true;
    options.slots = 100;
    const Status status =
        Check(SchedulesOf(algorithm.algorithm, 4, 0), options);
    EXPECT_EQ(status.code(), StatusCode::kInternal) << algorithm.name;
  }
}

// The unsplit ring is not, as its comment says.
TEST(SettingsTest, AnAllReduceWithOtherBitsOnOtherRanksIsFound) {
  CheckOptions options;
  options.slots = 2;
  const Status status = Check(
      SchedulesOf(
          FindAlgorithm(Collective::kAllReduce, "unsplit_ring")->algorithm, 3,
          0),
      options);
  EXPECT_NE(status.message().find("not the same bits"), std::string::npos)
      << status.ToString();
}

}  // namespace
}  // namespace ringpipe
