#include "validate/phases.h"

#include <string>

#include "gtest/gtest.h"

namespace ringpipe::validate {
namespace {

TEST(PhasesTest, FiveHundredRanksAtAHundredGigabitsTakeLessThanFiveMinutes) {
  Probe probe;
  probe.ranks = 512;
  probe.bytes_per_s = 12e9;
  probe.latency_s = 3e-6;
  probe.barrier_s = 100e-6;
  const RunPlan plan = MakePlan(probe, {});
  EXPECT_LT(plan.seconds(), 300) << DescribeCost(plan);
  EXPECT_LT(plan.memory_bytes, 100U << 20);
  EXPECT_GE(plan.message_bytes, 1U << 20);
}

TEST(PhasesTest, ASlowNetworkGetsShorterMessages) {
  Probe probe;
  probe.ranks = 8;
  probe.bytes_per_s = 12.5e6;
  probe.latency_s = 1e-4;
  probe.barrier_s = 1e-3;
  const RunPlan plan = MakePlan(probe, {});
  EXPECT_LE(plan.message_bytes, 1U << 20);
  EXPECT_LT(plan.seconds(), 90) << DescribeCost(plan);
}

TEST(PhasesTest, EachLinkAloneIsToldToTakeItsTime) {
  Probe probe;
  probe.ranks = 64;
  RunOptions options;
  options.isolate_all = true;
  EXPECT_GT(MakePlan(probe, options).seconds(),
            5 * MakePlan(probe, {}).seconds());
}

TEST(PhasesTest, ProgressGoesFromNothingToAll) {
  const RunPlan plan = MakePlan({}, {});
  const Progress progress(plan);
  double before = -1;
  for (const PhaseCost& cost : plan.phases) {
    for (const double part : {0.0, 0.5, 1.0}) {
      const double now = progress.Of(cost.phase, part);
      EXPECT_GE(now, before);
      before = now;
    }
  }
  EXPECT_DOUBLE_EQ(before, 1);
}

TEST(PhasesTest, TheCostIsASentence) {
  Probe probe;
  probe.ranks = 8;
  const std::string text = DescribeCost(MakePlan(probe, {}));
  EXPECT_TRUE(text.starts_with("about ")) << text;
  EXPECT_NE(text.find("the bandwidth of each link "), std::string::npos);
}

}  // namespace
}  // namespace ringpipe::validate
