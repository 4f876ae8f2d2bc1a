#include "validate/analysis.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "validate/identity.h"
#include "validate/port_findings.h"
#include "validate/simulated_cluster.h"
#include "validate/test_analysis.h"

namespace ringpipe::validate {
namespace {

using testing::ClusterOptions;
using testing::Fault;
using testing::MeasureCluster;
using testing::Quiet;
using testing::Texts;

Analysis Judge(const ClusterOptions& options) {
  return Analyze(MeasureCluster(options), {});
}

class SmallClusterTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Hosts, SmallClusterTest, ::testing::Values(3, 4, 8));

TEST_P(SmallClusterTest, WithoutFaultsIsHealthy) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    ClusterOptions options = Quiet(GetParam());
    options.seed = seed;
    const Analysis analysis = Judge(options);
    EXPECT_EQ(analysis.verdict, Verdict::kHealthy) << Texts(analysis);
  }
}

TEST_P(SmallClusterTest, EachSortOfFaultIsToldFromTheOthers) {
  using Kind = Finding::Kind;
  const std::pair<Fault::Kind, Kind> kSorts[] = {
      {Fault::Kind::kHost, Kind::kSlowHost},
      {Fault::Kind::kSender, Kind::kSlowSender},
      {Fault::Kind::kReceiver, Kind::kSlowReceiver},
      {Fault::Kind::kPath, Kind::kSlowPath},
      {Fault::Kind::kDirection, Kind::kSlowDirection}};
  for (const auto& [planted, found] : kSorts) {
    const Analysis analysis = Judge(Quiet(GetParam(), {{planted, 1, 2, 0.5}}));
    EXPECT_EQ(analysis.verdict, Verdict::kFaulty);
    ASSERT_EQ(analysis.findings.size(), 1U) << Texts(analysis);
    EXPECT_EQ(analysis.findings[0].kind, found) << Texts(analysis);
  }
}

TEST(AnalysisTest, ASlowSenderIsASentenceWithItsHostAndFigures) {
  const Analysis analysis =
      Judge(Quiet(8, {{Fault::Kind::kSender, 3, 0, 0.5}}));
  ASSERT_EQ(analysis.findings.size(), 1U) << Texts(analysis);
  const std::string& text = analysis.findings[0].text;
  EXPECT_TRUE(text.starts_with("host c03 sends at ")) << text;
  EXPECT_NE(text.find(" where the others send at "), std::string::npos) << text;
  EXPECT_NE(text.find("all its 7 links are slow, receiving is fine"),
            std::string::npos)
      << text;
  EXPECT_EQ(analysis.findings[0].host, "c03");
  EXPECT_EQ(analysis.summary, "1 thing is wrong");
}

TEST(AnalysisTest, ASlowHostAndItsPortAreOneThingThatIsWrong) {
  Measurements measured =
      MeasureCluster(Quiet(4, {{Fault::Kind::kHost, 2, 0, 0.7}}));
  for (int host = 0; host < 4; ++host) {
    Port port;
    port.host = testing::HostName(host);
    port.device = "mlx5_0";
    port.state = "ACTIVE";
    port.link_layer = "InfiniBand";
    port.lanes = host == 2 ? 1 : 4;
    port.rate = host == 2 ? "25 Gb/sec (1X EDR)" : "100 Gb/sec (4X EDR)";
    port.gigabits_per_s = host == 2 ? 25 : 100;
    measured.ports.push_back(port);
  }
  const Analysis analysis = Analyze(measured, {});
  ASSERT_EQ(analysis.findings.size(), 1U) << Texts(analysis);
  EXPECT_EQ(analysis.summary, "1 thing is wrong");
  const Finding& slow = analysis.findings[0];
  EXPECT_TRUE(slow.text.ends_with("port mlx5_0:1, width 1X of 4X"))
      << Texts(analysis);
  ASSERT_EQ(slow.also.size(), 1U);
  EXPECT_EQ(slow.also[0],
            "host c02: port mlx5_0:1 trained at width 1X of 4X "
            "(25 Gb/sec (1X EDR)): reseat or replace its cable");
}

// Two hosts of two ranks; each rank has a port of its own.
TEST(AnalysisTest, WhatIsOfAnotherPortOfASlowHostIsAnotherThing) {
  Measurements measured;
  for (const char* host : {"c00", "c01"}) {
    for (const char* port : {"mlx5_0:1", "mlx5_1:1"}) {
      measured.ranks.push_back({host, 1, "", {port}, 64});
    }
  }
  measured.planes.push_back({"all rails", -1, 1 << 20, LinkSamples(4, 1)});
  const auto of_port = [](const std::string& port, const std::string& text) {
    Finding finding = MakeFinding(Finding::Kind::kPort, true, text);
    finding.host = "c00";
    finding.port = port;
    return finding;
  };
  Finding slow = MakeFinding(Finding::Kind::kSlowSender, true, "slow");
  slow.host = "c00";
  slow.plane = 0;
  slow.links = {{1, 2}, {1, 3}};
  std::vector<Finding> findings = {slow, of_port("mlx5_0:1", "width"),
                                   of_port("mlx5_1:1", "width"),
                                   of_port("mlx5_0:1", "counter")};
  MergeByPort(measured, findings);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].also, std::vector<std::string>({"width"}));
  EXPECT_EQ(findings[1].also, std::vector<std::string>({"counter"}));
  // Of one host's memory no port is to blame.
  slow.links = {{1, 0}};
  findings = {slow, of_port("mlx5_1:1", "width")};
  MergeByPort(measured, findings);
  EXPECT_EQ(findings.size(), 2U);
}

TEST(AnalysisTest, LinksThatAreSlowOnlyInCompanyAreNoFault) {
  const Analysis analysis =
      Judge(Quiet(12, {{Fault::Kind::kContention, 0, 0, 0.5}}));
  EXPECT_EQ(analysis.verdict, Verdict::kHealthy) << Texts(analysis);
  ASSERT_EQ(analysis.findings.size(), 1U) << Texts(analysis);
  EXPECT_EQ(analysis.findings[0].kind, Finding::Kind::kContention);
  EXPECT_NE(analysis.findings[0].text.find("contention, not a cable"),
            std::string::npos);
}

TEST(AnalysisTest, TwoFaultsAreTwoFindings) {
  const Analysis analysis = Judge(Quiet(
      8, {{Fault::Kind::kSender, 3, 0, 0.5}, {Fault::Kind::kPath, 5, 6, 0.4}}));
  ASSERT_EQ(analysis.findings.size(), 2U) << Texts(analysis);
  EXPECT_EQ(analysis.findings[0].kind, Finding::Kind::kSlowSender);
  EXPECT_EQ(analysis.findings[1].kind, Finding::Kind::kSlowPath);
}

TEST(AnalysisTest, TwoSlowHostsOfEightAreBothNamed) {
  const Analysis analysis = Judge(Quiet(
      8, {{Fault::Kind::kHost, 1, 0, 0.5}, {Fault::Kind::kHost, 6, 0, 0.3}}));
  ASSERT_EQ(analysis.findings.size(), 2U) << Texts(analysis);
  EXPECT_EQ(analysis.findings[0].host, "c01");
  EXPECT_EQ(analysis.findings[1].host, "c06");
}

TEST(AnalysisTest, TwoHostsAreOnlyComparedWithEachOtherAndSaySo) {
  const Analysis healthy = Judge(Quiet(2));
  EXPECT_EQ(healthy.verdict, Verdict::kHealthy) << Texts(healthy);
  ASSERT_EQ(healthy.findings.size(), 1U);
  EXPECT_EQ(healthy.findings[0].kind, Finding::Kind::kFewLinks);
  const Analysis slow = Judge(Quiet(2, {{Fault::Kind::kDirection, 0, 1, 0.5}}));
  EXPECT_EQ(slow.verdict, Verdict::kFaulty) << Texts(slow);
}

TEST(AnalysisTest, WhatIsExpectedOfTheLinksIsHeldAgainstThem) {
  const Measurements measured = MeasureCluster(Quiet(2));
  EXPECT_EQ(Analyze(measured, {.expect_bytes_per_s = 12e9}).verdict,
            Verdict::kHealthy);
  const Analysis analysis = Analyze(measured, {.expect_bytes_per_s = 24e9});
  EXPECT_EQ(analysis.verdict, Verdict::kFaulty);
  EXPECT_EQ(analysis.findings[0].kind, Finding::Kind::kBelowExpected)
      << Texts(analysis);
}

// Rails of different speed on one host, and on all.
TEST(AnalysisTest, ASlowRailIsToldFromASlowHost) {
  Measurements measured = MeasureCluster(Quiet(8));
  for (Rank& rank : measured.ranks) {
    rank.rails = {"mlx5_0:1", "mlx5_1:1"};
  }
  const Plane good = MeasureCluster(Quiet(8)).planes[0];
  Plane bad =
      MeasureCluster(Quiet(8, {{Fault::Kind::kHost, 5, 0, 0.5}})).planes[0];
  Plane all =
      MeasureCluster(Quiet(8, {{Fault::Kind::kHost, 5, 0, 0.25}})).planes[0];
  measured.planes = {all, good, bad};
  measured.isolated.clear();
  measured.planes[1].name = "rail 0";
  measured.planes[1].rail = 0;
  measured.planes[2].name = "rail 1";
  measured.planes[2].rail = 1;
  const Analysis analysis = Analyze(measured, {});
  ASSERT_EQ(analysis.findings.size(), 1U) << Texts(analysis);
  EXPECT_TRUE(analysis.findings[0].text.starts_with("rail 1: host c05 "))
      << Texts(analysis);

  ClusterOptions slower = Quiet(8);
  slower.bytes_per_s = 6e9;
  measured.planes[0] = good;
  measured.planes[0].rail = -1;
  measured.planes[2].bytes_per_s = MeasureCluster(slower).planes[0].bytes_per_s;
  const Analysis everywhere = Analyze(measured, {});
  ASSERT_EQ(everywhere.findings.size(), 1U) << Texts(everywhere);
  EXPECT_EQ(everywhere.findings[0].kind, Finding::Kind::kSlowRail);
}

// Eight hosts with two rails, whose ports say that they do so much (0: they do
// not say), and which carry so much.
Measurements TwoRails(std::array<double, 2> gigabits_per_s,
                      std::array<double, 2> bytes_per_s) {
  Measurements measured = MeasureCluster(Quiet(8));
  measured.isolated.clear();
  for (Rank& rank : measured.ranks) {
    rank.rails = {"mlx5_0:1", "mlx5_1:1"};
  }
  for (int rail = 0; rail < 2; ++rail) {
    ClusterOptions options = Quiet(8);
    options.bytes_per_s = bytes_per_s[rail];
    measured.planes.push_back(MeasureCluster(options).planes[0]);
    measured.planes.back().name = "rail " + std::to_string(rail);
    measured.planes.back().rail = rail;
    for (const Rank& rank : measured.ranks) {
      Port port;
      port.host = rank.host;
      port.device = "mlx5_" + std::to_string(rail);
      port.state = "ACTIVE";
      port.link_layer = "Ethernet";
      port.gigabits_per_s = gigabits_per_s[rail];
      measured.ports.push_back(port);
    }
  }
  return measured;
}

std::vector<Finding> SlowRails(const Measurements& measured) {
  std::vector<Finding> findings = Analyze(measured, {}).findings;
  std::erase_if(findings, [](const Finding& finding) {
    return finding.kind != Finding::Kind::kSlowRail;
  });
  return findings;
}

TEST(SlowRailTest, OneThatIsSlowerByDesignIsNoFault) {
  const Analysis analysis = Analyze(TwoRails({100, 25}, {12e9, 3e9}), {});
  EXPECT_EQ(analysis.verdict, Verdict::kHealthy) << Texts(analysis);
  EXPECT_EQ(analysis.findings.size(), 0U) << Texts(analysis);
}

TEST(SlowRailTest, EachRankHasItsOwnNameForTheDeviceOfARail) {
  Measurements measured = TwoRails({100, 25}, {12e9, 3e9});
  std::swap(measured.ranks[1].rails[0], measured.ranks[1].rails[1]);
  for (Port& port : measured.ports) {
    if (port.host == measured.ranks[1].host) {
      port.device = port.device == "mlx5_0" ? "mlx5_1" : "mlx5_0";
    }
  }
  EXPECT_EQ(SlowRails(measured).size(), 0U) << Texts(Analyze(measured, {}));
}

TEST(SlowRailTest, OneThatIsFarFromItsNominalRateIsNamedBesideASlowerOne) {
  const Analysis analysis = Analyze(TwoRails({400, 200}, {24e9, 24e9}), {});
  EXPECT_EQ(analysis.verdict, Verdict::kFaulty);
  ASSERT_EQ(analysis.findings.size(), 1U) << Texts(analysis);
  const Finding& finding = analysis.findings[0];
  EXPECT_EQ(finding.kind, Finding::Kind::kSlowRail);
  EXPECT_EQ(finding.plane, 1);
  EXPECT_TRUE(finding.text.starts_with("rail 0 (mlx5_0:1) carries 2"))
      << finding.text;
  EXPECT_NE(finding.text.find(" of a nominal 50.0 GB/s on all hosts where "
                              "rail 1 carries 2"),
            std::string::npos)
      << finding.text;
  EXPECT_TRUE(finding.text.ends_with(" of 25.0 GB/s")) << finding.text;
}

TEST(SlowRailTest, RailsThatAreAlikeAreComparedByWhatTheyCarry) {
  const std::vector<Finding> slow =
      SlowRails(TwoRails({200, 200}, {24e9, 12e9}));
  ASSERT_EQ(slow.size(), 1U);
  EXPECT_TRUE(slow[0].text.starts_with("rail 1 (mlx5_1:1) carries 1"))
      << slow[0].text;
  EXPECT_NE(slow[0].text.find(" on all hosts where the fastest rail carries 2"),
            std::string::npos)
      << slow[0].text;
}

TEST(SlowRailTest, WithoutANominalRateOfAllPortsItIsTheSame) {
  EXPECT_EQ(SlowRails(TwoRails({100, 0}, {12e9, 3e9})).size(), 1U);
  EXPECT_EQ(SlowRails(TwoRails({0, 25}, {12e9, 3e9})).size(), 1U);
  const Measurements measured = TwoRails({100, 25}, {12e9, 3e9});
  for (const double other : {0.0, 50.0}) {
    for (std::size_t port = 0; port < measured.ports.size(); ++port) {
      Measurements differs = measured;
      differs.ports[port].gigabits_per_s = other;
      EXPECT_EQ(SlowRails(differs).size(), 1U) << port;
    }
  }
  Measurements lacks = measured;
  lacks.ports.pop_back();
  EXPECT_EQ(SlowRails(lacks).size(), 1U);
}

TEST(AnalysisTest, AHostWithFewerRailsThanOthersIsNamed) {
  Measurements measured = MeasureCluster(Quiet(4));
  for (Rank& rank : measured.ranks) {
    rank.rails = {"mlx5_0:1", "mlx5_1:1"};
  }
  measured.ranks[2].rails.pop_back();
  const Analysis analysis = Analyze(measured, {});
  ASSERT_EQ(analysis.findings.size(), 1U) << Texts(analysis);
  EXPECT_TRUE(
      analysis.findings[0].text.starts_with("host c02 has fewer rails than 2"))
      << Texts(analysis);
}

// --- What is expected ---

std::size_t BelowExpected(const Measurements& measured, double bytes_per_s) {
  AnalysisOptions options;
  options.expect_bytes_per_s = bytes_per_s;
  const Analysis analysis = Analyze(measured, options);
  return std::count_if(analysis.findings.begin(), analysis.findings.end(),
                       [](const Finding& finding) {
                         return finding.kind == Finding::Kind::kBelowExpected;
                       });
}

TEST(ExpectationTest, IsOfAllRailsTogether) {
  Measurements measured = MeasureCluster(Quiet(4));  // 12 GB/s
  ClusterOptions half = Quiet(4);
  half.bytes_per_s = 6e9;
  const Plane rail = MeasureCluster(half).planes[0];
  measured.isolated.clear();
  for (int number = 0; number < 2; ++number) {
    for (Rank& rank : measured.ranks) {
      rank.rails.push_back("mlx5_" + std::to_string(number) + ":1");
    }
    measured.planes.push_back(rail);
    measured.planes.back().rail = number;
  }
  EXPECT_EQ(BelowExpected(measured, 12e9), 0U);
  EXPECT_EQ(BelowExpected(measured, 15e9), 1U);
}

TEST(ExpectationTest, IsOfLinksThatShareACableTogether) {
  ClusterOptions options = Quiet(2);
  options.ranks_per_host = 8;
  Measurements measured = MeasureCluster(options);
  // As if ranks went round robin, so that no step uses a cable for one link.
  for (int rank = 0; rank < 16; ++rank) {
    measured.ranks[rank].host = testing::HostName(rank % 2);
  }
  EXPECT_GT(BelowExpected(measured, 1e12), 0U);
}

// Where each rank has a port of its own, a link carries the same beside others,
// and it takes all of a host's ranks to fill the host.
TEST(ExpectationTest, IsOfAllRanksOfAHostTogether) {
  ClusterOptions options = Quiet(2);
  options.ranks_per_host = 2;
  Measurements measured = MeasureCluster(options);
  measured.isolated.clear();
  LinkSamples& samples = measured.planes[0].bytes_per_s;
  for (int from = 0; from < 4; ++from) {
    for (int to = 0; to < 4; ++to) {
      for (int repeat = 0; repeat < samples.repeats() && from / 2 != to / 2;
           ++repeat) {
        samples.at(from, to, repeat) = 12.5e9F;
      }
    }
  }
  EXPECT_EQ(BelowExpected(measured, 25e9), 0U);
  EXPECT_EQ(BelowExpected(measured, 30e9), 1U);
  // Only links that use rank 1's port.
  for (int repeat = 0; repeat < samples.repeats(); ++repeat) {
    for (const int other : {2, 3}) {
      samples.at(1, other, repeat) = 6e9F;
    }
  }
  EXPECT_EQ(BelowExpected(measured, 25e9), 1U);
}

TEST(ExpectationTest, IsOfEachLinkWhereThereAreFew) {
  Measurements measured = MeasureCluster(Quiet(2));  // 12 GB/s
  EXPECT_EQ(BelowExpected(measured, 12.5e9), 0U);
  LinkSamples& samples = measured.planes[0].bytes_per_s;
  for (int repeat = 0; repeat < samples.repeats(); ++repeat) {
    samples.at(0, 1, repeat) = 10.9e9F;  // 91 % of the other
  }
  EXPECT_EQ(BelowExpected(measured, 12.5e9), 1U);
}

// --- Ranks of one host ---

// Eight ranks of one host, of which rank 3 is slow; by rank, the processors on
// which it may run.
Measurements ASlowRankAmong(
    const std::vector<std::vector<std::uint8_t>>& processors) {
  ClusterOptions options = Quiet(1);
  options.ranks_per_host = 8;
  Measurements measured = MeasureCluster(options);
  measured.isolated.clear();
  std::vector<Identity> identities;
  for (const std::vector<std::uint8_t>& own : processors) {
    Identity identity;
    identity.host_name = "c00";
    identity.host_id = "boot";
    identity.processors = own;
    identities.push_back(identity);
  }
  measured.ranks = NameRanks(identities);
  LinkSamples& samples = measured.planes[0].bytes_per_s;
  for (int other = 0; other < 8; ++other) {
    for (int repeat = 0; repeat < samples.repeats() && other != 3; ++repeat) {
      samples.at(3, other, repeat) *= 0.5F;
      samples.at(other, 3, repeat) *= 0.5F;
    }
  }
  return measured;
}

TEST(RanksOfAHostTest, ASlowOneIsAFaultWhereEachIsBoundToACoreOfItsOwn) {
  std::vector<std::vector<std::uint8_t>> processors;
  for (int rank = 0; rank < 8; ++rank) {
    processors.push_back({static_cast<std::uint8_t>(1 << rank)});
  }
  const Analysis analysis = Analyze(ASlowRankAmong(processors), {});
  EXPECT_EQ(analysis.verdict, Verdict::kFaulty);
  ASSERT_EQ(analysis.findings.size(), 1U) << Texts(analysis);
  EXPECT_EQ(analysis.findings[0].kind, Finding::Kind::kSlowHost);
  EXPECT_TRUE(analysis.findings[0].text.starts_with("host c00 rank 3 "))
      << Texts(analysis);
  EXPECT_EQ(analysis.findings[0].text.find("share"), std::string::npos)
      << Texts(analysis);
}

TEST(RanksOfAHostTest, ASlowOneIsANoteWhereTheyShareCores) {
  const Analysis analysis = Analyze(
      ASlowRankAmong(std::vector<std::vector<std::uint8_t>>(8, {0b11})), {});
  EXPECT_EQ(analysis.verdict, Verdict::kHealthy);
  ASSERT_EQ(analysis.findings.size(), 1U) << Texts(analysis);
  EXPECT_NE(analysis.findings[0].text.find("its ranks share 2 cores"),
            std::string::npos)
      << Texts(analysis);
}

// Measured alone it was disturbed, too: it is not certain.
TEST(RanksOfAHostTest, OneThatMayBeSlowIsUncertainUnlessTheyShareCores) {
  for (const std::uint8_t cores : {0xFF, 0b11}) {
    Measurements measured =
        ASlowRankAmong(std::vector<std::vector<std::uint8_t>>(8, {cores}));
    const auto alone = [&measured](int from, int to, double rate,
                                   bool control) {
      Isolated link = {0, from, to, control, {}};
      link.bytes_per_s.assign(6, static_cast<float>(rate));
      link.queued.assign(2, {from == 3 ? 0.9 : 0, to == 3 ? 0.9 : 0});
      measured.isolated.push_back(link);
    };
    for (const int other : {0, 1, 2}) {
      alone(3, other, 6e9, false);
      alone(other, 3, 6e9, false);
    }
    for (const int rank : {4, 5, 6, 7, 0, 1}) {
      alone(rank, rank ^ 1, 12e9, true);
    }
    const Analysis analysis = Analyze(measured, {});
    EXPECT_NE(Texts(analysis).find("unverified"), std::string::npos)
        << Texts(analysis);
    EXPECT_EQ(analysis.verdict,
              cores == 0xFF ? Verdict::kUncertain : Verdict::kHealthy)
        << Texts(analysis);
  }
}

TEST(AnalysisTest, ALostRankIsAFindingWithItsName) {
  Measurements measured = MeasureCluster(Quiet(4));
  measured.ending = Ending{"bandwidth", "rank 2 (pid 7) has died", 2, ""};
  const Analysis analysis = Analyze(measured, {});
  EXPECT_EQ(analysis.verdict, Verdict::kFaulty);
  EXPECT_EQ(analysis.findings[0].kind, Finding::Kind::kLost);
  EXPECT_EQ(analysis.findings[0].host, "c02");
}

TEST(AnalysisTest, WrongBytesAreWorseThanSlowLinks) {
  Measurements measured =
      MeasureCluster(Quiet(8, {{Fault::Kind::kHost, 1, 0, 0.5}}));
  measured.stress = Stress{10, 100, 1000, {{3, 4, 2, 17}}};
  const Analysis analysis = Analyze(measured, {});
  ASSERT_EQ(analysis.findings.size(), 2U) << Texts(analysis);
  EXPECT_EQ(analysis.findings[0].text,
            "c03 → c04: 2 messages arrived with wrong bytes, 17 of them: "
            "memory, card or driver at one end");
}

TEST(AnalysisTest, AHostThatAnswersLateIsNotedAndNoFault) {
  Measurements measured = MeasureCluster(Quiet(8));
  measured.latencies = Latencies{LinkSamples(8, 1), LinkSamples(8, 1)};
  for (int a = 0; a < 8; ++a) {
    for (int b = 0; b < 8; ++b) {
      if (a != b) {
        measured.latencies->median_s.at(a, b, 0) =
            (a == 6 || b == 6 ? 9e-6F : 3e-6F) +
            static_cast<float>((a + b) % 5) * 5e-8F;
      }
    }
  }
  const Analysis analysis = Analyze(measured, {});
  EXPECT_EQ(analysis.verdict, Verdict::kHealthy);
  ASSERT_EQ(analysis.findings.size(), 1U) << Texts(analysis);
  EXPECT_EQ(analysis.findings[0].kind, Finding::Kind::kLatency);
  EXPECT_EQ(analysis.findings[0].host, "c06");
}

// What many ranks do at once is worth a note where it is much less than the
// links promise; and only between hosts.
TEST(AnalysisTest, PatternsFarBelowTheirLinksAreNotedAndNoFault) {
  Measurements measured = MeasureCluster(Quiet(8));
  measured.patterns = {{"ring", "natural", 90e9, 96e9},
                       {"bisection", "even and odd ranks", 48e9, 96e9},
                       {"bisection", "lower and upper half", 24e9, 96e9}};
  const Analysis analysis = Analyze(measured, {});
  EXPECT_EQ(analysis.verdict, Verdict::kHealthy);
  ASSERT_EQ(analysis.findings.size(), 1U) << Texts(analysis);
  EXPECT_EQ(analysis.findings[0].kind, Finding::Kind::kPattern);
  EXPECT_EQ(
      analysis.findings[0].text,
      "bisection (lower and upper half) carries 24.0 GB/s in all, 25 % of what "
      "its slowest link would allow, and 1 other pattern as little: the fabric "
      "is oversubscribed");
  // Rings use no more paths of the fabric than links do.
  measured.patterns[0].bytes_per_s = 48e9;
  EXPECT_NE(Texts(Analyze(measured, {}))
                .find("sending and receiving at once is slower than either"),
            std::string::npos);
  for (Rank& rank : measured.ranks) {
    rank.host = "c00";
  }
  EXPECT_EQ(Analyze(measured, {}).findings.size(), 0U)
      << Texts(Analyze(measured, {}));
}

TEST(AnalysisTest, OneRankOrNothingMeasuredIsNoVerdict) {
  Measurements one = MeasureCluster(Quiet(1));
  EXPECT_EQ(Analyze(one, {}).verdict, Verdict::kNotMeasured);
  Measurements half = MeasureCluster(Quiet(4));
  half.planes[0].bytes_per_s.at(2, 3, 0) = NAN;
  half.planes[0].bytes_per_s.at(2, 3, 1) = NAN;
  half.planes[0].bytes_per_s.at(2, 3, 2) = NAN;
  EXPECT_EQ(Analyze(half, {}).verdict, Verdict::kNotMeasured);
}

// --- The file ---

TEST(MeasurementsTest, AFileHasAllThatWasMeasured) {
  ClusterOptions options = Quiet(5, {{Fault::Kind::kSender, 2, 0, 0.5}});
  Measurements measured = MeasureCluster(options);
  measured.planes[0].bytes_per_s.at(1, 2, 2) = NAN;
  measured.latencies = Latencies{LinkSamples(5, 1), LinkSamples(5, 1)};
  measured.latencies->median_s.at(0, 1, 0) = 2.5e-6F;
  measured.patterns.push_back({"ring", "natural", 1e10, 2e10});
  measured.stress = Stress{10, 100, 1000, {{3, 4, 2, 17}}};
  measured.ending = Ending{"latency", "rank 2 died", 2, "SIGINT"};
  Port port;
  port.host = "c01";
  port.device = "mlx5_0";
  port.gid_types = {"IB/RoCE v1", "RoCE v2"};
  port.before = {{"symbol_error", 4}};
  port.after = {{"symbol_error", 9}};
  measured.ports.push_back(port);
  const std::string text = ToJson(measured);
  const auto read = FromJson(text);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(ToJson(read.value()), text);
  EXPECT_EQ(read->stress->wrong, measured.stress->wrong);
  EXPECT_EQ(read->ports[0].after, port.after);
}

TEST(MeasurementsTest, AFileThatIsDamagedIsRefusedWithTheReason) {
  const std::string text =
      ToJson(MeasureCluster(Quiet(3, {{Fault::Kind::kSender, 1, 0, 0.5}})));
  EXPECT_FALSE(FromJson("").ok());
  EXPECT_FALSE(FromJson("[]").ok());
  EXPECT_FALSE(FromJson("{}").ok());
  EXPECT_FALSE(FromJson(text.substr(0, text.size() / 2)).ok());
  // Every name of a member, and every text, in turn.
  for (std::size_t at = text.find('"'); at != std::string::npos;
       at = text.find('"', at + 1)) {
    std::string renamed = text;
    renamed[at + 1] = '#';
    static_cast<void>(FromJson(renamed));  // must not crash
  }
  std::string other = text;
  other.replace(other.find("\"from\":"), 7, "\"from\":9");
  const auto read = FromJson(other);
  EXPECT_EQ(read.status().code(), StatusCode::kInvalidArgument);
}

// A file may come from anybody.
TEST(MeasurementsTest, AFileCannotMakeTheReportReadWhatIsNotThere) {
  const std::string text = ToJson(MeasureCluster(Quiet(3)));
  const auto with = [&text](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return FromJson(changed);
  };
  EXPECT_EQ(with("\"rail\":-1", "\"rail\":7").status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(with("\"repeats\":3", "\"repeats\":0").status().code(),
            StatusCode::kInvalidArgument);
  // No memory is taken for it.
  EXPECT_EQ(with("\"repeats\":3", "\"repeats\":10000").status().code(),
            StatusCode::kInvalidArgument);
  const auto named = with("\"c01\"", "\"c\\u001b[2J\"");
  ASSERT_TRUE(named.ok()) << named.status().ToString();
  EXPECT_EQ(named->ranks[1].host, "c?[2J");
}

}  // namespace
}  // namespace ringpipe::validate
