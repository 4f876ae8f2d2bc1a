#include "validate/prediction.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "engine/algorithms.h"
#include "pipeline/simulator.h"

namespace ringpipe::validate {
namespace {

// The simulator runs every message of every rank.
constexpr int kMostSimulated = 64;
// A core's, of what one rank adds up; small beside any network's.
constexpr double kReduceSecondsPerByte = 1.0 / 8e9;
constexpr int kDepth = 4;
constexpr std::uint64_t kSubchunkBytes = 128 << 10;

bool OneRankAHost(const Measurements& measurements) {
  std::set<std::string> hosts;
  for (const Rank& rank : measurements.ranks) {
    hosts.insert(rank.host);
  }
  return hosts.size() == measurements.ranks.size();
}

// 0 where it cannot be told.
double SimulatedSeconds(int ranks, std::uint64_t bytes,
                        const NetworkModel& network) {
  const AlgorithmInfo& algorithm =
      AlgorithmChoice().For(Collective::kAllReduce, bytes);
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < ranks; ++rank) {
    schedules.push_back(algorithm.algorithm({rank, ranks, 0, {}}));
  }
  SimulationOptions options;
  options.message_bytes = bytes;
  options.subchunk_bytes = kSubchunkBytes;
  options.depth = kDepth;
  options.slots =
      AlgorithmChoice().Slots({0, ranks, 0, {}}, kDepth, CommonHost());
  const auto result = Simulate(schedules, network, options);
  return result.ok() ? result->seconds : 0;
}

}  // namespace

Prediction PredictAllReduce(const Measurements& measurements,
                            std::uint64_t bytes) {
  const int ranks = measurements.size();
  double slowest = INFINITY, latency = 0;
  std::vector<double> latencies;
  for (int from = 0; from < ranks && !measurements.planes.empty(); ++from) {
    for (int to = 0; to < ranks; ++to) {
      const double rate =
          measurements.planes.front().bytes_per_s.MedianOf(from, to);
      if (from != to && !std::isnan(rate)) {
        slowest = std::min(slowest, rate);
      }
      if (measurements.latencies &&
          !std::isnan(measurements.latencies->median_s.at(from, to, 0))) {
        latencies.push_back(measurements.latencies->median_s.at(from, to, 0));
      }
    }
  }
  if (!std::isfinite(slowest) || ranks < 2) {
    return {};
  }
  latency = latencies.empty() ? 0 : Median(latencies);
  if (ranks <= kMostSimulated && OneRankAHost(measurements)) {
    const double seconds =
        SimulatedSeconds(ranks, bytes,
                         {.latency_s = latency,
                          .wire_s_per_byte = 1 / slowest,
                          .reduce_s_per_byte = kReduceSecondsPerByte});
    if (seconds > 0) {
      return {seconds, true};
    }
  }
  const double steps = 2.0 * (ranks - 1);
  return {steps * (latency + static_cast<double>(bytes) / ranks / slowest),
          false};
}

}  // namespace ringpipe::validate
