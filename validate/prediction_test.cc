#include "validate/prediction.h"

#include <cmath>
#include <string>

#include "gtest/gtest.h"
#include "validate/measurements.h"

namespace ringpipe::validate {
namespace {

constexpr double kBytesPerS = 1e9;
constexpr std::uint64_t kBytes = 64 << 20;

// All links alike; no latencies.
Measurements Cluster(int ranks, int ranks_per_host) {
  Measurements measured;
  measured.planes.push_back({"all rails", -1, 1 << 20, LinkSamples(ranks, 1)});
  for (int from = 0; from < ranks; ++from) {
    measured.ranks.push_back(
        {"c" + std::to_string(from / ranks_per_host), 1, "", {}, 1});
    for (int to = 0; to < ranks; ++to) {
      measured.planes[0].bytes_per_s.at(from, to, 0) =
          from == to ? NAN : static_cast<float>(kBytesPerS);
    }
  }
  return measured;
}

// What a ring sends, over one link; Patarasuk and Yuan, "Bandwidth optimal
// all-reduce algorithms for clusters of workstations" (2009).
double RingSeconds(int ranks, double bytes_per_s) {
  return 2.0 * (ranks - 1) / ranks * kBytes / bytes_per_s;
}

TEST(PredictionTest, SimulatesALongMessageBetweenHosts) {
  for (const int ranks : {2, 4, 8, 64}) {
    const Prediction predicted = PredictAllReduce(Cluster(ranks, 1), kBytes);
    EXPECT_TRUE(predicted.simulated);
    EXPECT_GE(predicted.seconds, 0.999 * RingSeconds(ranks, kBytesPerS));
    // The pipeline's beginning and end, and additions, come on top.
    EXPECT_LE(predicted.seconds, 1.3 * RingSeconds(ranks, kBytesPerS))
        << ranks << " ranks";
  }
}

TEST(PredictionTest, WaitsForTheSlowestLink) {
  Measurements measured = Cluster(4, 1);
  const double even = PredictAllReduce(measured, kBytes).seconds;
  measured.planes[0].bytes_per_s.at(3, 1, 0) = kBytesPerS / 2;
  const double slow = PredictAllReduce(measured, kBytes).seconds;
  EXPECT_NEAR(slow, 2 * even, 0.3 * even);
}

TEST(PredictionTest, AddsTheLatencyOfEachStep) {
  Measurements measured = Cluster(4, 1);
  const double without = PredictAllReduce(measured, kBytes).seconds;
  measured.latencies = Latencies{LinkSamples(4, 1), LinkSamples(4, 1)};
  for (int a = 0; a < 4; ++a) {
    for (int b = 0; b < 4; ++b) {
      measured.latencies->median_s.at(a, b, 0) = a == b ? NAN : 0.01F;
    }
  }
  EXPECT_GE(PredictAllReduce(measured, kBytes).seconds, without + 0.06 - 1e-6);
}

TEST(PredictionTest, GoesByTheFormulaWhereHostsAreSharedOrRanksMany) {
  for (const auto& [ranks, ranks_per_host] :
       {std::pair(4, 2), std::pair(65, 1)}) {
    const Prediction predicted =
        PredictAllReduce(Cluster(ranks, ranks_per_host), kBytes);
    EXPECT_FALSE(predicted.simulated);
    EXPECT_NEAR(predicted.seconds, RingSeconds(ranks, kBytesPerS),
                1e-6 * predicted.seconds);
  }
}

TEST(PredictionTest, SaysNothingWithoutALink) {
  EXPECT_EQ(PredictAllReduce(Cluster(1, 1), kBytes).seconds, 0);
  EXPECT_EQ(PredictAllReduce({}, kBytes).seconds, 0);
  Measurements nothing = Cluster(3, 1);
  nothing.planes[0].bytes_per_s = LinkSamples(3, 1);
  EXPECT_EQ(PredictAllReduce(nothing, kBytes).seconds, 0);
}

}  // namespace
}  // namespace ringpipe::validate
