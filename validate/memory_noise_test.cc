// Several ranks on each host: memory, which is never quiet, does not decide
// what is said of the network.
#include <algorithm>
#include <vector>

#include "gtest/gtest.h"
#include "validate/analysis.h"
#include "validate/simulated_cluster.h"
#include "validate/slow_links.h"
#include "validate/test_analysis.h"

namespace ringpipe::validate {
namespace {

using testing::ClusterOptions;
using testing::Fault;
using testing::Faults;
using testing::MeasureCluster;
using testing::Quiet;
using testing::Says;
using testing::Texts;

ClusterOptions NoisyMemory(std::uint64_t seed, std::vector<Fault> faults = {}) {
  ClusterOptions options = Quiet(6, std::move(faults));
  options.ranks_per_host = 2;
  options.memory_noise = 0.25;
  options.seed = seed;
  return options;
}

bool IsInside(const Measurements& measured, const Link& link) {
  return measured.ranks[link.first].host == measured.ranks[link.second].host;
}

// Of so many passes each other one disturbs all messages inside hosts; the
// links of `slow` inside its host carry a third.
Measurements WithASlowRank(int slow) {
  constexpr int kPasses = 4;
  ClusterOptions options = Quiet(4);
  options.ranks_per_host = 4;
  Measurements measured = MeasureCluster(options);
  LinkSamples& samples = measured.planes[0].bytes_per_s;
  samples = LinkSamples(measured.size(), kPasses * kPassMessages);
  for (int from = 0; from < measured.size(); ++from) {
    for (int to = 0; to < measured.size(); ++to) {
      const bool inside = from != to && IsInside(measured, {from, to});
      for (int k = 0; from != to && k < samples.repeats(); ++k) {
        const bool disturbed = k / kPassMessages % 2 == 1;
        samples.at(from, to, k) =
            inside && (disturbed || from == slow || to == slow) ? 4e9F : 12e9F;
      }
    }
  }
  return measured;
}

// As often, and slow likewise.
void MeasureAlone(int slow, Measurements& measured) {
  const ToIsolate chosen = ChooseToIsolate(measured, 0, 0.1);
  for (const bool control : {false, true}) {
    for (const auto& [from, to] : control ? chosen.controls : chosen.suspects) {
      const float rate = from == slow || to == slow ? 4e9F : 12e9F;
      measured.isolated.push_back({0, from, to, control, {}});
      measured.isolated.back().bytes_per_s.assign(kAlonePasses * kPassMessages,
                                                  rate);
    }
  }
}

TEST(MemoryNoiseTest, MakesNothingUncertainAndTakesNoTime) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Measurements measured = MeasureCluster(NoisyMemory(seed));
    const Analysis analysis = Analyze(measured, {});
    EXPECT_EQ(analysis.verdict, Verdict::kHealthy) << Texts(analysis);
    EXPECT_EQ(analysis.could_tell, 0.1);
    EXPECT_EQ(measured.planes[0].bytes_per_s.repeats(), kPassMessages);
    for (const Isolated& link : measured.isolated) {
      if (!IsInside(measured, {link.from, link.to})) {
        EXPECT_EQ(link.bytes_per_s.size(), kAlonePasses * kPassMessages);
      }
    }
  }
}

TEST(MemoryNoiseTest, HidesNoSlowHost) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Analysis analysis = Analyze(
        MeasureCluster(NoisyMemory(seed, {{Fault::Kind::kHost, 2, 0, 0.15}})),
        {});
    ASSERT_EQ(Faults(analysis).size(), 1U) << Texts(analysis);
    EXPECT_TRUE(Says(analysis, "host c02 sends and receives"))
        << Texts(analysis);
  }
}

TEST(MemoryNoiseTest, BlamesARankInLessThanOneRunInAHundred) {
  int runs = 0, blamed = 0;
  for (const int ranks : {3, 4, 8}) {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
      ClusterOptions options = NoisyMemory(seed);
      options.hosts = 3;
      options.ranks_per_host = ranks;
      ++runs;
      blamed += Faults(Analyze(MeasureCluster(options), {})).empty() ? 0 : 1;
    }
  }
  EXPECT_LT(blamed, runs / 100);
}

// There are more than can be measured alone.
TEST(MemoryNoiseTest, SlowPairsInsideHostsLeaveRoomForAPath) {
  ClusterOptions options = NoisyMemory(1);
  options.hosts = 16;
  options.ranks_per_host = 8;
  Measurements measured = MeasureCluster(options);
  const Link path(3, 77);
  LinkSamples& samples = measured.planes[0].bytes_per_s;
  for (int repeat = 0; repeat < samples.repeats(); ++repeat) {
    samples.at(path.first, path.second, repeat) *= 0.85F;
  }
  const std::vector<Link> suspects = ChooseToIsolate(measured, 0, 0.1).suspects;
  EXPECT_EQ(suspects.size(), kMostSuspects);
  EXPECT_EQ(std::count(suspects.begin(), suspects.end(), path), 1);
}

// Healthy links of its host are slow in each other pass, too.
TEST(MemoryNoiseTest, ARankThatMayBeSlowMakesItUncertainUnlessRanksShareCores) {
  Measurements measured = WithASlowRank(5);
  MeasureAlone(5, measured);
  const Analysis in_doubt = Analyze(measured, {});
  EXPECT_EQ(in_doubt.verdict, Verdict::kUncertain) << Texts(in_doubt);
  EXPECT_TRUE(Says(in_doubt, "some links are slow, and noise may be why"))
      << Texts(in_doubt);
  for (Rank& rank : measured.ranks) {
    rank.cores = 2;
  }
  const Analysis shared = Analyze(measured, {});
  EXPECT_EQ(shared.verdict, Verdict::kHealthy) << Texts(shared);
}

}  // namespace
}  // namespace ringpipe::validate
