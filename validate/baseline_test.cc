// What has changed since an earlier run, host by host and port by port.
#include <string>

#include "gtest/gtest.h"
#include "validate/analysis.h"
#include "validate/simulated_cluster.h"
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

TEST(BaselineTest, WhatHasChangedSinceTheBaselineIsFoundWithTwoHostsToo) {
  const Measurements then = MeasureCluster(Quiet(2));
  ClusterOptions options = Quiet(2);
  options.bytes_per_s = 6e9;
  options.seed = 2;
  const Measurements now = MeasureCluster(options);
  EXPECT_EQ(Analyze(now, {}).verdict, Verdict::kHealthy);
  const Analysis analysis = Analyze(now, {}, &then);
  EXPECT_EQ(analysis.verdict, Verdict::kFaulty);
  EXPECT_EQ(analysis.findings[0].kind, Finding::Kind::kSlowerThanThen)
      << Texts(analysis);
}

TEST(BaselineTest, APortThatIsSlowerOrGoneSinceTheBaselineIsNamed) {
  Measurements then = MeasureCluster(Quiet(4));
  for (int host = 0; host < 4; ++host) {
    Port port;
    port.host = testing::HostName(host);
    port.device = "mlx5_0";
    port.state = "ACTIVE";
    port.link_layer = "Ethernet";
    port.rate = "100 Gb/sec (4X EDR)";
    port.gigabits_per_s = 100;
    then.ports.push_back(port);
  }
  Measurements now = then;
  EXPECT_EQ(Analyze(now, {}, &then).verdict, Verdict::kHealthy);
  // Better than it was.
  std::swap(now, then);
  then.ports[3].rate = "40 Gb/sec (4X QDR)";
  then.ports[3].gigabits_per_s = 40;
  const Analysis better = Analyze(now, {}, &then);
  EXPECT_EQ(better.verdict, Verdict::kHealthy) << Texts(better);
  ASSERT_EQ(better.findings.size(), 1U) << Texts(better);
  EXPECT_EQ(better.findings[0].text,
            "host c03: port mlx5_0:1 is ACTIVE at 100 Gb/sec (4X EDR); on " +
                then.date + " it was ACTIVE at 40 Gb/sec (4X QDR)");
  // All are slower, so that none differs from its peers; and one is gone.
  then = now;
  for (Port& port : now.ports) {
    port.rate = "25 Gb/sec (1X EDR)";
    port.gigabits_per_s = 25;
  }
  now.ports.erase(now.ports.begin() + 2);
  const Analysis worse = Analyze(now, {}, &then);
  EXPECT_EQ(worse.verdict, Verdict::kFaulty);
  ASSERT_EQ(worse.findings.size(), 4U) << Texts(worse);
  EXPECT_NE(Texts(worse).find("host c02: port mlx5_0:1 is gone; on " +
                              then.date + " it was ACTIVE at 100 Gb/sec"),
            std::string::npos)
      << Texts(worse);
}

TEST(BaselineTest, AHostThatWasSlowAlreadyIsStillNamedOnce) {
  const Fault slow = {Fault::Kind::kHost, 1, 0, 0.5};
  const Measurements then = MeasureCluster(Quiet(8, {slow}));
  ClusterOptions options = Quiet(8, {slow});
  options.seed = 2;
  const Analysis same = Analyze(MeasureCluster(options), {}, &then);
  EXPECT_EQ(same.findings.size(), 1U) << Texts(same);
  // Another one since.
  options.faults.push_back({Fault::Kind::kSender, 4, 0, 0.4});
  const Measurements healthy = MeasureCluster(Quiet(8));
  const Analysis analysis = Analyze(MeasureCluster(options), {}, &healthy);
  EXPECT_EQ(analysis.findings.size(), 2U) << Texts(analysis);
}

TEST(BaselineTest, AnotherRunIsAsHealthyAsItsBaseline) {
  const Measurements then = MeasureCluster(Quiet(16));
  for (std::uint64_t seed = 2; seed < 20; ++seed) {
    ClusterOptions options = Quiet(16);
    options.seed = seed;
    const Analysis analysis = Analyze(MeasureCluster(options), {}, &then);
    EXPECT_EQ(analysis.verdict, Verdict::kHealthy) << Texts(analysis);
  }
}

// Two paths of one host, of which one is slow beside others, and the other one
// only beside what it was.
TEST(BaselineTest, AChangeIsNotTakenForAnotherOneOfTheSameHost) {
  ClusterOptions options = Quiet(8, {{Fault::Kind::kDirection, 1, 2, 0.5}});
  options.ranks_per_host = 2;
  const Measurements now = MeasureCluster(options);
  options.faults.clear();
  Measurements then = MeasureCluster(options);
  LinkSamples& samples = then.planes[0].bytes_per_s;
  for (const int from : {2, 3}) {  // of c01
    for (const int to : {6, 7}) {  // of c03
      for (int repeat = 0; repeat < samples.repeats(); ++repeat) {
        samples.at(from, to, repeat) *= 1.6F;
      }
    }
  }
  const Analysis analysis = Analyze(now, {}, &then);
  ASSERT_EQ(analysis.findings.size(), 2U) << Texts(analysis);
  EXPECT_NE(Texts(analysis).find("c01 → c03 is down to "), std::string::npos)
      << Texts(analysis);
}

Measurements Renumbered(const Measurements& measured, int shift) {
  Measurements other = measured;
  const int ranks = measured.size();
  for (int from = 0; from < ranks; ++from) {
    other.ranks[(from + shift) % ranks] = measured.ranks[from];
    for (int to = 0; to < ranks; ++to) {
      for (int k = 0; k < measured.planes[0].bytes_per_s.repeats(); ++k) {
        other.planes[0].bytes_per_s.at((from + shift) % ranks,
                                       (to + shift) % ranks, k) =
            measured.planes[0].bytes_per_s.at(from, to, k);
      }
    }
  }
  return other;
}

TEST(BaselineTest, InAnotherOrderIsComparedHostByHost) {
  const Measurements then = Renumbered(MeasureCluster(Quiet(8)), 3);
  const Measurements now =
      MeasureCluster(Quiet(8, {{Fault::Kind::kSender, 4, 0, 0.3}}));
  const Analysis changed = Analyze(now, {}, &then);
  EXPECT_EQ(changed.verdict, Verdict::kFaulty);
  ASSERT_EQ(Faults(changed).size(), 1U) << Texts(changed);
  EXPECT_EQ(changed.findings[0].host, "c04") << Texts(changed);
  EXPECT_EQ(Analyze(MeasureCluster(Quiet(8)), {}, &then).verdict,
            Verdict::kHealthy);
}

TEST(BaselineTest, OfOtherHostsIsNotHealthy) {
  Measurements then = MeasureCluster(Quiet(8));
  for (Rank& rank : then.ranks) {
    rank.host = "d" + rank.host;
  }
  const Analysis analysis = Analyze(MeasureCluster(Quiet(8)), {}, &then);
  EXPECT_EQ(ExitStatus(analysis.verdict), 2) << Texts(analysis);
  EXPECT_TRUE(Says(analysis, "give a baseline of these hosts"))
      << Texts(analysis);
}

TEST(BaselineTest, OfWhichAHostIsAnotherNowIsNotHealthy) {
  Measurements then = MeasureCluster(Quiet(8));
  then.ranks[5].host = "another";
  const Analysis analysis = Analyze(MeasureCluster(Quiet(8)), {}, &then);
  EXPECT_EQ(ExitStatus(analysis.verdict), 2) << Texts(analysis);
  EXPECT_TRUE(Says(analysis, "lacks 1 rank of this run, on host c05: "))
      << Texts(analysis);
}

// As many links of it are as slow as the others now: only beside what it was,
// it is the one that dropped most.
TEST(BaselineTest, ADropEverywhereDoesNotHideTheHostThatDroppedMost) {
  Measurements then = MeasureCluster(Quiet(8));
  LinkSamples& samples = then.planes[0].bytes_per_s;
  for (int other = 0; other < 8; ++other) {
    for (int repeat = 0; repeat < samples.repeats(); ++repeat) {
      samples.at(6, other, repeat) *= 2;
      samples.at(other, 6, repeat) *= 2;
    }
  }
  ClusterOptions options = Quiet(8);
  options.bytes_per_s = 6e9;
  const Analysis analysis = Analyze(MeasureCluster(options), {}, &then);
  EXPECT_TRUE(Says(analysis, "of what they did on")) << Texts(analysis);
  EXPECT_TRUE(Says(analysis, "what host c06 sends and receives is down to "))
      << Texts(analysis);
}

TEST(BaselineTest, APortOfAHostThatDoesNotTakePartIsNotGone) {
  Measurements then = MeasureCluster(Quiet(8));
  for (const Rank& rank : then.ranks) {
    Port port;
    port.host = rank.host;
    port.device = "mlx5_0";
    port.state = "ACTIVE";
    port.link_layer = "Ethernet";
    then.ports.push_back(port);
  }
  Measurements now = MeasureCluster(Quiet(6));
  now.ports.assign(then.ports.begin(), then.ports.begin() + 6);
  EXPECT_EQ(Analyze(now, {}, &then).verdict, Verdict::kHealthy)
      << Texts(Analyze(now, {}, &then));
  // Of one that does, it is.
  now.ports.erase(now.ports.begin() + 4);
  ASSERT_EQ(Faults(Analyze(now, {}, &then)).size(), 1U);
  EXPECT_EQ(Faults(Analyze(now, {}, &then))[0].host, "c04");
}

TEST(BaselineTest, AHostThatIsSlowInEachWayIsOneThing) {
  const auto in_each_way = [](const ClusterOptions& options) {
    Measurements measured = MeasureCluster(options);
    for (const char* const way : {"short messages", "both ways at once"}) {
      measured.planes.push_back(measured.planes[0]);
      measured.planes.back().name = way;
    }
    return measured;
  };
  const Measurements then = in_each_way(Quiet(8));
  const Analysis analysis = Analyze(
      in_each_way(Quiet(8, {{Fault::Kind::kHost, 6, 0, 0.5}})), {}, &then);
  EXPECT_EQ(Faults(analysis).size(), 1U) << Texts(analysis);
}

}  // namespace
}  // namespace ringpipe::validate
