#include "bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ringpipe {
namespace {

struct Interval {
  std::size_t k = 1;      // from the k-th smallest to the k-th largest
  double confidence = 0;  // that the median lies between them
};

// In logarithms, because 2^-n underflows from n = 1075 on.
Interval MedianInterval(std::size_t n) {
  const double log_half_to_n = -static_cast<double>(n) * std::log(2.0);
  double below = 0;  // P(Binomial(n, 1/2) < k)
  Interval interval;
  double log_choose = 0;  // of (n over k - 1)
  for (std::size_t k = 1; 2 * k <= n + 1; ++k) {
    below += std::exp(log_choose + log_half_to_n);
    if (k > 1 && below > 0.025) {
      break;
    }
    interval = {k, std::max(0.0, 1 - 2 * below)};
    log_choose += std::log(static_cast<double>(n - k + 1)) -
                  std::log(static_cast<double>(k));
  }
  return interval;
}

}  // namespace

Summary Summarize(std::vector<double> samples) {
  Summary summary;
  const std::size_t n = samples.size();
  if (n == 0) {
    return summary;
  }
  std::sort(samples.begin(), samples.end());
  const Interval interval = MedianInterval(n);
  summary.samples = n;
  summary.median = (samples[(n - 1) / 2] + samples[n / 2]) / 2;
  summary.min = samples.front();
  summary.max = samples.back();
  summary.mean = std::accumulate(samples.begin(), samples.end(), 0.0) /
                 static_cast<double>(n);
  summary.median_low = samples[interval.k - 1];
  summary.median_high = samples[n - interval.k];
  summary.confidence = interval.confidence;
  return summary;
}

double Combine(AcrossRanks how, const std::vector<double>& values) {
  switch (how) {
    case AcrossRanks::kRank0:
      return values.front();
    case AcrossRanks::kMin:
      return *std::min_element(values.begin(), values.end());
    case AcrossRanks::kMax:
      return *std::max_element(values.begin(), values.end());
    case AcrossRanks::kAverage:
      break;
  }
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(values.size());
}

}  // namespace ringpipe
