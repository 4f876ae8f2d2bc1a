#include "engine/trial.h"

#include <cstddef>
#include <vector>

#include "gtest/gtest.h"

namespace ringpipe {
namespace {

using std::chrono::nanoseconds;

// Makes calls, each of which takes as long as its way does; returns how many
// went each way.
std::vector<int> CallsByWay(Trial& trial, int calls,
                            const std::vector<int>& ns) {
  std::vector<int> went(ns.size());
  for (int call = 0; call < calls; ++call) {
    const std::size_t way = trial.Next();
    ++went[way];
    trial.Took(way, nanoseconds(ns[way]), 1000);
  }
  return went;
}

// The second of two.
int MakeCalls(Trial& trial, int calls, int first_ns, int second_ns) {
  return CallsByWay(trial, calls, {first_ns, second_ns})[1];
}

TEST(TrialTest, MostCallsGoTheFasterWay) {
  Trial first_is_faster(2);
  EXPECT_LE(MakeCalls(first_is_faster, 320, 500, 600), 11);
  Trial second_is_faster(2);
  EXPECT_GE(MakeCalls(second_is_faster, 320, 600, 500), 320 - 12);
}

TEST(TrialTest, OfThreeWaysMostCallsGoTheFastestAndTheOthersTakeTurns) {
  for (std::size_t fastest = 0; fastest < 3; ++fastest) {
    std::vector<int> ns = {600, 600, 600};
    ns[fastest] = 500;
    Trial trial(3);
    const std::vector<int> went = CallsByWay(trial, 3200, ns);
    EXPECT_GE(went[fastest], 3200 - 4 - 100) << fastest;
    for (std::size_t way = 0; way < 3; ++way) {
      EXPECT_GE(went[way], 2 + 48) << fastest << ", " << way;
    }
  }
}

TEST(TrialTest, TheFirstWayIsNotLeftForOneThatIsHardlyFaster) {
  Trial trial(2);
  EXPECT_LE(MakeCalls(trial, 320, 520, 500), 11);
}

TEST(TrialTest, AShortSeriesFindsItToo) {
  Trial trial(2);
  EXPECT_EQ(MakeCalls(trial, 6, 600, 500), 4);  // 0 and 2 go the first
}

TEST(TrialTest, WhatTheFirstCallOfAWayTakesBesidesDecidesNothing) {
  Trial trial(2);
  MakeCalls(trial, 2, 10'000, 1'000'000);
  // Calls 2 and 32 go the first.
  EXPECT_EQ(MakeCalls(trial, 38, 600, 500), 36);
}

TEST(TrialTest, ItTurnsAsTheTimesDo) {
  Trial trial(2);
  MakeCalls(trial, 100, 500, 600);
  EXPECT_GE(MakeCalls(trial, 200, 1500, 600), 150);
  EXPECT_LE(MakeCalls(trial, 200, 500, 900), 50);
}

TEST(TrialTest, OneCallThatWaitsForALateRankTurnsNothing) {
  Trial trial(2);
  MakeCalls(trial, 10, 500, 600);
  trial.Took(0, nanoseconds(1'000'000), 1000);
  EXPECT_EQ(trial.Next(), 0U);
}

}  // namespace
}  // namespace ringpipe
