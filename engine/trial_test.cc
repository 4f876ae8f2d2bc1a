#include "engine/trial.h"

#include "gtest/gtest.h"

namespace ringpipe {
namespace {

using std::chrono::nanoseconds;

// Makes calls, each of which takes as long as its way does; returns how many
// went the second.
int MakeCalls(Trial& trial, int calls, int first_ns, int second_ns) {
  int second = 0;
  for (int call = 0; call < calls; ++call) {
    const bool takes_second = trial.TakesSecond();
    second += takes_second ? 1 : 0;
    trial.Took(takes_second, nanoseconds(takes_second ? second_ns : first_ns),
               1000);
  }
  return second;
}

TEST(TrialTest, MostCallsGoTheFasterWay) {
  Trial first_is_faster;
  EXPECT_LE(MakeCalls(first_is_faster, 320, 500, 600), 11);
  Trial second_is_faster;
  EXPECT_GE(MakeCalls(second_is_faster, 320, 600, 500), 320 - 12);
}

TEST(TrialTest, AShortSeriesFindsItToo) {
  Trial trial;
  EXPECT_EQ(MakeCalls(trial, 6, 600, 500), 4);  // 0 and 2 go the first
}

TEST(TrialTest, WhatTheFirstCallOfAWayTakesBesidesDecidesNothing) {
  Trial trial;
  MakeCalls(trial, 2, 10'000, 1'000'000);
  // Calls 2 and 32 go the first.
  EXPECT_EQ(MakeCalls(trial, 38, 600, 500), 36);
}

TEST(TrialTest, ItTurnsAsTheTimesDo) {
  Trial trial;
  MakeCalls(trial, 100, 500, 600);
  EXPECT_GE(MakeCalls(trial, 200, 1500, 600), 150);
  EXPECT_LE(MakeCalls(trial, 200, 500, 900), 50);
}

TEST(TrialTest, OneCallThatWaitsForALateRankTurnsNothing) {
  Trial trial;
  MakeCalls(trial, 10, 500, 600);
  trial.Took(false, nanoseconds(1'000'000), 1000);
  EXPECT_FALSE(trial.TakesSecond());
}

}  // namespace
}  // namespace ringpipe
