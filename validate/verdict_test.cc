// What an operator may rely on: noise is not called healthy, what is alike is
// one finding, and the sentences are true.
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "validate/analysis.h"
#include "validate/simulated_cluster.h"

namespace ringpipe::validate {
namespace {

using testing::ClusterOptions;
using testing::Fault;
using testing::HostName;
using testing::MeasureCluster;

std::string Texts(const Analysis& analysis) {
  std::string texts = analysis.summary + "\n";
  for (const Finding& finding : analysis.findings) {
    texts += std::string(KindName(finding.kind)) + ": " + finding.text + "\n";
  }
  return texts;
}

std::vector<Finding> Faults(const Analysis& analysis) {
  std::vector<Finding> faults = analysis.findings;
  std::erase_if(faults, [](const Finding& finding) { return !finding.fault; });
  return faults;
}

ClusterOptions Quiet(int hosts, std::vector<Fault> faults = {}) {
  return {.hosts = hosts,
          .noise = 0.01,
          .disturbed = 0,
          .faults = std::move(faults)};
}

bool Says(const Analysis& analysis, const std::string& words) {
  return Texts(analysis).find(words) != std::string::npos;
}

TEST(VerdictTest, NoiseThatHidesAllIsUncertainAndSaysWhatWouldHelp) {
  ClusterOptions options = Quiet(16);
  options.busy = 0.6;
  const Analysis analysis = Analyze(MeasureCluster(options), {});
  EXPECT_EQ(analysis.verdict, Verdict::kUncertain) << Texts(analysis);
  EXPECT_EQ(ExitStatus(analysis.verdict), 2);
  EXPECT_TRUE(Says(analysis, "run it again while the hosts"))
      << Texts(analysis);
  EXPECT_EQ(Faults(analysis).size(), 0U) << Texts(analysis);
}

TEST(VerdictTest, WhereAThirdOfTheSamplesIsDisturbedAHalvedHostIsFound) {
  int found = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    ClusterOptions options = Quiet(4, {{Fault::Kind::kHost, 2, 0, 0.5}});
    options.disturbed = 0.3;
    options.seed = seed;
    const Analysis analysis = Analyze(MeasureCluster(options), {});
    EXPECT_NE(analysis.verdict, Verdict::kHealthy) << Texts(analysis);
    found += !analysis.findings.empty() && analysis.findings[0].host == "c02";
  }
  EXPECT_GE(found, 15);
}

// Half of the passes over healthy links are slow, but never all messages of so
// many.
TEST(VerdictTest, WhereHalfOfTheSamplesIsDisturbedAPathAtHalfIsFound) {
  int found = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    ClusterOptions options = Quiet(4, {{Fault::Kind::kDirection, 2, 1, 0.6}});
    options.disturbed = 0.4;
    options.seed = seed;
    const Analysis analysis = Analyze(MeasureCluster(options), {});
    const std::vector<Finding> faults = Faults(analysis);
    EXPECT_NE(analysis.verdict, Verdict::kHealthy) << Texts(analysis);
    EXPECT_LE(faults.size(), 1U) << Texts(analysis);
    found += faults.size() == 1 &&
             faults[0].text.find("c02 → c01") != std::string::npos;
  }
  EXPECT_GE(found, 15);
}

// About half of its links are below the tolerance then.
TEST(VerdictTest, ASenderThatLosesTheToleranceIsOneFinding) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    ClusterOptions options = Quiet(8, {{Fault::Kind::kSender, 3, 0, 0.105}});
    options.seed = seed;
    const Analysis analysis = Analyze(MeasureCluster(options), {});
    for (const Finding& fault : Faults(analysis)) {
      EXPECT_TRUE(fault.text.starts_with("host c03 sends at"))
          << Texts(analysis);
    }
    EXPECT_FALSE(Says(analysis, "both with others are fine"))
        << Texts(analysis);
  }
}

// One host of 16, with two ranks and four rails, that loses hardly more than
// the tolerance: some of its paths seem slower than all of it.
ClusterOptions HardlySlow(std::uint64_t seed, Fault fault) {
  return {.hosts = 16,
          .ranks_per_host = 2,
          .rails = 4,
          .noise = 0.034,
          .seed = seed,
          .faults = {fault}};
}

TEST(VerdictTest, WhatARailExplainsIsNoFindingOfAllRails) {
  const Analysis analysis =
      Analyze(MeasureCluster(HardlySlow(9753855620083114355U,
                                        {.kind = Fault::Kind::kSender,
                                         .a = 14,
                                         .loss = 0.111536,
                                         .rail = 1})),
              {});
  ASSERT_EQ(Faults(analysis).size(), 1U) << Texts(analysis);
  EXPECT_TRUE(Says(analysis, "rail 1: host c14 sends")) << Texts(analysis);
}

TEST(VerdictTest, APathThatIsAsSlowAsItsHostIsNoFindingOfItsOwn) {
  const Analysis analysis =
      Analyze(MeasureCluster(HardlySlow(
                  13993036169379219334U,
                  {.kind = Fault::Kind::kHost, .a = 11, .loss = 0.101123})),
              {});
  ASSERT_EQ(Faults(analysis).size(), 1U) << Texts(analysis);
  EXPECT_EQ(Faults(analysis).front().host, "c11") << Texts(analysis);
}

TEST(VerdictTest, APathFarSlowerThanItsHostIsBesideIt) {
  ClusterOptions options = Quiet(
      8, {{.kind = Fault::Kind::kSender, .a = 3, .loss = 0.2, .rail = 1},
          {.kind = Fault::Kind::kDirection, .a = 3, .b = 4, .loss = 0.6}});
  options.rails = 2;
  const Analysis analysis = Analyze(MeasureCluster(options), {});
  EXPECT_TRUE(Says(analysis, "rail 1: host c03 sends")) << Texts(analysis);
  EXPECT_TRUE(Says(analysis, "c03 → c04")) << Texts(analysis);
}

TEST(VerdictTest, FiveSlowHostsOfEightAreOneFindingThatNamesThem) {
  const Measurements measured =
      MeasureCluster(Quiet(8, {{Fault::Kind::kHosts, 5, 0, 0.5}}));
  const Analysis analysis = Analyze(measured, {});
  ASSERT_EQ(Faults(analysis).size(), 1U) << Texts(analysis);
  EXPECT_TRUE(analysis.findings[0].text.starts_with(
      "5 of 8 hosts send and receive at "))
      << Texts(analysis);
  EXPECT_TRUE(Says(analysis, "c00, c01, c02, c03, c04")) << Texts(analysis);
}

TEST(VerdictTest, TwentySlowCardsOfThirtyTwoAreSaidToBeAnotherKind) {
  const Analysis analysis = Analyze(
      MeasureCluster(Quiet(32, {{Fault::Kind::kHosts, 20, 0, 0.5}})), {});
  ASSERT_EQ(Faults(analysis).size(), 1U) << Texts(analysis);
  EXPECT_TRUE(Says(analysis, "20 of 32 hosts send and receive at "))
      << Texts(analysis);
  EXPECT_TRUE(Says(analysis, "two kinds of ports or cards")) << Texts(analysis);
}

TEST(VerdictTest, ASwitchThatLacksUplinksIsOneFindingByItsHosts) {
  ClusterOptions options = Quiet(64, {{Fault::Kind::kLeaf, 16, 0, 0.5}});
  options.leaf_hosts = 16;
  options.oversubscribed = 2;
  const Analysis analysis = Analyze(MeasureCluster(options), {});
  ASSERT_EQ(Faults(analysis).size(), 1U) << Texts(analysis);
  EXPECT_TRUE(analysis.findings[0].text.starts_with(
      "the switch of c16 … c31 (16 hosts): its links to other switches carry "))
      << Texts(analysis);
}

TEST(VerdictTest, AFatTreeWithoutFaultsIsHealthyThoughItsUplinksAreShared) {
  ClusterOptions options = Quiet(64);
  options.leaf_hosts = 16;
  options.oversubscribed = 2;
  const Analysis analysis = Analyze(MeasureCluster(options), {});
  EXPECT_EQ(analysis.verdict, Verdict::kHealthy) << Texts(analysis);
}

TEST(VerdictTest, OfContentionTheSlowestLinkIsNamed) {
  ClusterOptions options = Quiet(12, {{Fault::Kind::kContention, 0, 0, 0.4}});
  Measurements measured = MeasureCluster(options);
  LinkSamples& samples = measured.planes[0].bytes_per_s;
  for (int repeat = 0; repeat < samples.repeats(); ++repeat) {
    samples.at(5, 7, repeat) *= 0.5F;
  }
  EXPECT_TRUE(Says(Analyze(measured, {}), "the slowest is c05 → c07"))
      << Texts(Analyze(measured, {}));
}

TEST(VerdictTest, WhatEndedEarlyIsNeitherHealthyNorBlamesWhatWasNotVerified) {
  Measurements measured =
      MeasureCluster(Quiet(8, {{Fault::Kind::kSender, 3, 0, 0.5}}));
  measured.isolated.clear();
  measured.ending = Ending{"links alone", "", -1, "SIGINT"};
  const Analysis slow = Analyze(measured, {});
  EXPECT_EQ(slow.verdict, Verdict::kUncertain) << Texts(slow);
  EXPECT_TRUE(Says(slow, "ended before this was verified")) << Texts(slow);
  measured.planes = MeasureCluster(Quiet(8)).planes;
  const Analysis fine = Analyze(measured, {});
  EXPECT_EQ(fine.verdict, Verdict::kUncertain) << Texts(fine);
  EXPECT_TRUE(fine.summary.starts_with("it ended early, while links alone"));
}

// Duplex is what nothing else sees.
TEST(VerdictTest, AHostThatIsSlowOnlyBothWaysAtOnceIsAFault) {
  Measurements measured = MeasureCluster(Quiet(8));
  Plane both =
      MeasureCluster(Quiet(8, {{Fault::Kind::kHost, 6, 0, 0.5}})).planes[0];
  both.name = "both ways at once";
  measured.planes.push_back(both);
  const Analysis analysis = Analyze(measured, {});
  ASSERT_EQ(Faults(analysis).size(), 1U) << Texts(analysis);
  EXPECT_TRUE(analysis.findings[0].text.starts_with(
      "both ways at once: host c06 sends and receives at "))
      << Texts(analysis);
  // Not twice.
  measured.planes[0] = both;
  EXPECT_EQ(Faults(Analyze(measured, {})).size(), 1U)
      << Texts(Analyze(measured, {}));
}

// No link is measured alone so, which would tell what is busy from what is
// slow.
TEST(VerdictTest, ABusyHostIsNotBlamedForWhatItDoesBothWaysAtOnceEither) {
  for (const bool is_busy : {false, true}) {
    Measurements measured =
        MeasureCluster(Quiet(8, {{Fault::Kind::kHost, 6, 0, 0.4}}));
    for (Isolated& link : measured.isolated) {
      link.queued.assign(link.bytes_per_s.size() / 3,
                         {is_busy && link.from == 6 ? 0.9 : 0.01,
                          is_busy && link.to == 6 ? 0.9 : 0.01});
    }
    measured.planes.push_back(measured.planes[0]);
    measured.planes.back().name = "both ways at once";
    const Analysis analysis = Analyze(measured, {});
    EXPECT_EQ(Faults(analysis).size(), is_busy ? 0U : 1U) << Texts(analysis);
    EXPECT_EQ(Says(analysis, "other work on the host may be why"), is_busy)
        << Texts(analysis);
  }
}

// --- What has changed ---

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
}

TEST(BaselineTest, ADropEverywhereDoesNotHideTheHostThatDroppedMost) {
  ClusterOptions options = Quiet(8, {{Fault::Kind::kHost, 6, 0, 0.5}});
  options.bytes_per_s = 6e9;
  const Measurements then = MeasureCluster(Quiet(8));
  const Analysis analysis = Analyze(MeasureCluster(options), {}, &then);
  EXPECT_TRUE(Says(analysis, "of what they did on")) << Texts(analysis);
  EXPECT_TRUE(Says(analysis, "host c06 sends and receives at "))
      << Texts(analysis);
}

// --- What is one host's ---

TEST(HostTest, OneWhoseMessagesTakeLongOnceInAHundredIsNamed) {
  Measurements measured = MeasureCluster(Quiet(8));
  for (int other = 0; other < 8; ++other) {
    measured.latencies->p99_s.at(5, other, 0) =
        measured.latencies->p99_s.at(other, 5, 0) = other == 5 ? NAN : 0.5F;
  }
  const Analysis analysis = Analyze(measured, {});
  ASSERT_EQ(Faults(analysis).size(), 1U) << Texts(analysis);
  EXPECT_EQ(analysis.findings[0].host, "c05");
  EXPECT_TRUE(Says(analysis, "takes 500 ms where ")) << Texts(analysis);
}

// A host whose ranks wait for cores seems to be slow in each pass alike: the
// passes do not vary by themselves, as noise does.
TEST(HostTest, ABusyOneIsSaidToBeAndNotBlamed) {
  Measurements measured = MeasureCluster(
      Quiet(8, {{.kind = Fault::Kind::kSender, .a = 3, .loss = 0.4},
                {.kind = Fault::Kind::kReceiver, .a = 6, .loss = 0.4}}));
  for (Isolated& link : measured.isolated) {
    const bool is_busy = link.from == 3 || link.to == 3;
    link.queued.assign(link.bytes_per_s.size() / 3,
                       {is_busy ? 0.9 : 0.01, 0.02});
  }
  const Analysis analysis = Analyze(measured, {});
  ASSERT_EQ(Faults(analysis).size(), 1U) << Texts(analysis);
  EXPECT_EQ(Faults(analysis).front().host, "c06");
  EXPECT_TRUE(Says(analysis, "host c03 is busy with other work"))
      << Texts(analysis);
  // Without the one that is certain, it is not.
  Measurements alone = MeasureCluster(
      Quiet(8, {{.kind = Fault::Kind::kSender, .a = 3, .loss = 0.4}}));
  for (Isolated& link : alone.isolated) {
    link.queued.assign(link.bytes_per_s.size() / 3,
                       {link.from == 3 ? 0.9 : 0.01, link.to == 3 ? 0.9 : 0.0});
  }
  const Analysis uncertain = Analyze(alone, {});
  EXPECT_TRUE(Faults(uncertain).empty()) << Texts(uncertain);
  EXPECT_EQ(uncertain.verdict, Verdict::kUncertain) << Texts(uncertain);
}

TEST(HostTest, ALinkThatComesAndGoesIsFoundThoughMostSamplesAreFast) {
  Measurements measured = MeasureCluster(Quiet(8));
  LinkSamples& samples = measured.planes[0].bytes_per_s;
  for (int other = 0; other < 8; ++other) {
    samples.at(2, other, other % 3) *= 0.05F;
    samples.at(other, 2, (other + 1) % 3) *= 0.05F;
  }
  const Analysis analysis = Analyze(measured, {});
  ASSERT_EQ(Faults(analysis).size(), 1U) << Texts(analysis);
  EXPECT_EQ(analysis.findings[0].kind, Finding::Kind::kDisturbed);
  EXPECT_EQ(analysis.findings[0].host, "c02") << Texts(analysis);
}

TEST(HostTest, OneWhoseSegmentsAreLostIsNamed) {
  Measurements measured = MeasureCluster(Quiet(6));
  for (int host = 0; host < 6; ++host) {
    measured.networks.push_back({.host = HostName(host),
                                 .segments = 100'000,
                                 .retransmitted = host == 3 ? 600U : 5U,
                                 .steps = 40,
                                 .lossy_steps = host == 3 ? 38U : 3U});
  }
  const Analysis analysis = Analyze(measured, {});
  ASSERT_EQ(Faults(analysis).size(), 1U) << Texts(analysis);
  EXPECT_EQ(analysis.findings[0].host, "c03") << Texts(analysis);
  // Of a host that is slow, queues are full; and some are elsewhere, too.
  Measurements slow =
      MeasureCluster(Quiet(6, {{Fault::Kind::kSender, 3, 0, 0.5}}));
  slow.networks = measured.networks;
  EXPECT_EQ(Faults(Analyze(slow, {})).size(), 1U) << Texts(Analyze(slow, {}));
  // So few; or now and then, as where other traffic comes and goes.
  measured.networks[3].retransmitted = 300;
  EXPECT_EQ(Faults(Analyze(measured, {})).size(), 0U);
  measured.networks[3].retransmitted = 1'500;
  measured.networks[3].lossy_steps = 20;
  EXPECT_EQ(Faults(Analyze(measured, {})).size(), 0U);
  // All the time, and others now and then as many.
  measured.networks[3].lossy_steps = 40;
  for (HostNetwork& network : measured.networks) {
    network.retransmitted = 1'500;
  }
  EXPECT_EQ(Faults(Analyze(measured, {})).size(), 1U);
}

TEST(HostTest, AllLinksFarBelowTheRateOfTheirPortsAreAFault) {
  Measurements measured = MeasureCluster(Quiet(6));
  measured.way = "software device";
  for (int host = 0; host < 6; ++host) {
    measured.networks.push_back({HostName(host), 10'000});
  }
  ClusterOptions slow = Quiet(6);
  slow.bytes_per_s = 0.3e9;
  measured.planes = MeasureCluster(slow).planes;
  measured.isolated.clear();
  EXPECT_TRUE(Says(Analyze(measured, {}), "24 % of what the ports"))
      << Texts(Analyze(measured, {}));
  slow.bytes_per_s = 1.1e9;
  measured.planes = MeasureCluster(slow).planes;
  EXPECT_EQ(Analyze(measured, {}).verdict, Verdict::kHealthy)
      << Texts(Analyze(measured, {}));
}

// Soft-RoCE and its like, which are not on PCI.
TEST(HostTest, TheRateThatASoftwarePortNamesIsNone) {
  ClusterOptions slow = Quiet(6);
  slow.bytes_per_s = 0.1e9;
  Measurements measured = MeasureCluster(slow);
  measured.isolated.clear();
  for (Rank& rank : measured.ranks) {
    Port port;
    port.host = rank.host;
    port.device = "rxe0";
    port.number = 1;
    port.gigabits_per_s = 10;
    measured.ports.push_back(port);
    rank.rails = {port.Name()};
  }
  EXPECT_FALSE(Says(Analyze(measured, {}), "of what the ports"))
      << Texts(Analyze(measured, {}));
  for (Port& port : measured.ports) {
    port.pci_lanes = 16;
  }
  EXPECT_TRUE(Says(Analyze(measured, {}), "8.0 % of what the ports"))
      << Texts(Analyze(measured, {}));
}

TEST(HostTest, OneThatWasLostIsAFindingThoughTheOthersAreMeasured) {
  Measurements measured = MeasureCluster(Quiet(4));
  measured.lost = {{"c09", "latencies", "rank 2 has died"}};
  const Analysis analysis = Analyze(measured, {});
  EXPECT_EQ(analysis.verdict, Verdict::kFaulty);
  EXPECT_TRUE(Says(analysis,
                   "host c09 was lost while latencies was measured, "
                   "which went on without it"))
      << Texts(analysis);
  const auto read = FromJson(ToJson(measured));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->lost.size(), 1U);
}

}  // namespace
}  // namespace ringpipe::validate
