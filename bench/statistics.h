// What a series of measured times says: median with a confidence interval.
#ifndef RINGPIPE_BENCH_STATISTICS_H_
#define RINGPIPE_BENCH_STATISTICS_H_

#include <cstddef>
#include <vector>

namespace ringpipe {

// All in the unit of the samples.
struct Summary {
  std::size_t samples = 0;
  double median = 0;
  double min = 0;
  double max = 0;
  double mean = 0;
  // An interval that holds the median of the distribution with probability
  // `confidence`: at least 0.95 from 6 samples on, and what the whole range
  // gives with fewer (1 - 2^(1-n)).
  double median_low = 0;
  double median_high = 0;
  double confidence = 0;
};

// Of independent samples of any distribution, in any order. The interval runs
// from one order statistic to another: x(k) to x(n+1-k), with the largest k for
// which a binomial (n, 1/2) variable is below k with probability <= 0.025.
// (Hahn and Meeker, Statistical Intervals, section 5.2.) All zero for none.
Summary Summarize(std::vector<double> samples);

// How summaries of several ranks' times are made one number; the values are
// those of nccl-tests' option -a.
enum class AcrossRanks : int {
  kRank0 = 0,
  kAverage = 1,
  kMin = 2,
  kMax = 3,
};

// `values` by rank, not empty.
double Combine(AcrossRanks how, const std::vector<double>& values);

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_STATISTICS_H_
