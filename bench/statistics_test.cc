#include "bench/statistics.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace ringpipe {
namespace {

std::vector<double> OneTo(int n) {
  std::vector<double> values(n);
  std::iota(values.begin(), values.end(), 1);
  return values;
}

TEST(Statistics, MedianMinMaxAndMeanDoNotDependOnOrder) {
  const Summary odd = Summarize({9, 1, 5});
  EXPECT_EQ(odd.median, 5);
  EXPECT_EQ(odd.min, 1);
  EXPECT_EQ(odd.max, 9);
  EXPECT_EQ(odd.mean, 5);
  EXPECT_EQ(Summarize({4, 1, 2, 9}).median, 3);
  EXPECT_EQ(Summarize({}).samples, 0u);
}

// The order statistics are those of the published tables for the median's 95 %
// interval: n = 6: 1 to 6; 10: 2 to 9; 20: 6 to 15; 100: 40 to 61.
TEST(Statistics, IntervalOfTheMedianIsTheTablesOne) {
  struct Row {
    int n;
    double low, high;
  };
  for (const Row& row :
       {Row{6, 1, 6}, Row{10, 2, 9}, Row{20, 6, 15}, Row{100, 40, 61}}) {
    const Summary summary = Summarize(OneTo(row.n));
    EXPECT_EQ(summary.median_low, row.low) << row.n;
    EXPECT_EQ(summary.median_high, row.high) << row.n;
    EXPECT_GE(summary.confidence, 0.95) << row.n;
  }
  EXPECT_NEAR(Summarize(OneTo(20)).confidence, 0.9586, 0.0001);
}

TEST(Statistics, FewSamplesGiveTheRangeAndItsTrueConfidence) {
  const Summary five = Summarize(OneTo(5));
  EXPECT_EQ(five.median_low, 1);
  EXPECT_EQ(five.median_high, 5);
  EXPECT_NEAR(five.confidence, 1 - 2.0 / 32, 1e-12);
  EXPECT_EQ(Summarize({7}).median_low, 7);
  EXPECT_EQ(Summarize({7}).confidence, 0);
}

TEST(Statistics, ManySamplesDoNotUnderflow) {
  const Summary summary = Summarize(OneTo(10000));
  EXPECT_NEAR(summary.median_low, 4902, 1);
  EXPECT_NEAR(summary.median_high, 5099, 1);
}

TEST(Statistics, IntervalHoldsTheTrueMedianAsOftenAsItSays) {
  std::mt19937_64 random(1);
  std::exponential_distribution<double> distribution(1.0);
  const double true_median = std::log(2.0);
  int held = 0;
  constexpr int kTrials = 4000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> samples(20);
    for (double& sample : samples) {
      sample = distribution(random);
    }
    const Summary summary = Summarize(samples);
    held +=
        summary.median_low <= true_median && true_median <= summary.median_high;
  }
  // 0.9586, give or take four standard deviations.
  EXPECT_NEAR(static_cast<double>(held) / kTrials, 0.9586, 0.0126);
}

TEST(Statistics, CombinesRanksAsOptionASays) {
  const std::vector<double> by_rank = {4, 1, 7};
  EXPECT_EQ(Combine(AcrossRanks::kRank0, by_rank), 4);
  EXPECT_EQ(Combine(AcrossRanks::kAverage, by_rank), 4);
  EXPECT_EQ(Combine(AcrossRanks::kMin, by_rank), 1);
  EXPECT_EQ(Combine(AcrossRanks::kMax, by_rank), 7);
}

}  // namespace
}  // namespace ringpipe
