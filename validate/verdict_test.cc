// What an operator may rely on: noise is not called healthy, what is alike is
// one finding, and the sentences are true.
#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "validate/analysis.h"
#include "validate/part_sentences.h"
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
      Analyze(MeasureCluster(HardlySlow(112, {.kind = Fault::Kind::kSender,
                                              .a = 14,
                                              .loss = 0.111536,
                                              .rail = 1})),
              {});
  ASSERT_EQ(Faults(analysis).size(), 1U) << Texts(analysis);
  EXPECT_TRUE(Says(analysis, "rail 1: host c14 sends")) << Texts(analysis);
}

// Hardly ever: it may seem slower by chance.
TEST(VerdictTest, APathThatIsAsSlowAsItsHostIsNoFindingOfItsOwn) {
  int named = 0, twice = 0;
  for (std::uint64_t seed = 300; seed < 330; ++seed) {
    const Analysis analysis = Analyze(
        MeasureCluster(HardlySlow(
            seed, {.kind = Fault::Kind::kHost, .a = 11, .loss = 0.101123})),
        {});
    if (Says(analysis, "host c11 sends and receives")) {
      ++named;
      twice += Says(analysis, "slow_direction") ? 1 : 0;
    }
  }
  EXPECT_GT(named, 5);
  EXPECT_LE(twice, 3);
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

TEST(VerdictTest, OneSlowUplinkIsOneFindingByItsSwitch) {
  ClusterOptions options = Quiet(64, {{Fault::Kind::kUplink, 16, 0, 0.5}});
  options.leaf_hosts = 16;
  Measurements measured = MeasureCluster(options);
  const Analysis analysis = Analyze(measured, {});
  ASSERT_EQ(Faults(analysis).size(), 1U) << Texts(analysis);
  EXPECT_TRUE(Says(analysis,
                   " paths from the switch of c16 … c31 (16 hosts) are slow: "))
      << Texts(analysis);
  // The worst of them, wherever it is among the links.
  const auto [from, to] = Faults(analysis)[0].links.back();
  LinkSamples& samples = measured.planes[0].bytes_per_s;
  for (int repeat = 0; repeat < samples.repeats(); ++repeat) {
    samples.at(from, to, repeat) *= 0.7F;
  }
  for (Isolated& alone : measured.isolated) {
    for (double& sample : alone.bytes_per_s) {
      sample *= alone.from == from && alone.to == to ? 0.7 : 1;
    }
  }
  const Analysis worse = Analyze(measured, {});
  EXPECT_TRUE(Says(worse, ": one of its uplinks; the worst is " +
                              testing::HostName(from) + " → " +
                              testing::HostName(to)))
      << Texts(worse);
}

// Rings and bisections use what is shared; latencies of TCP vary, and one pair
// takes twice as long as the others.
TEST(VerdictTest, AHealthyClusterIsToldNothing) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    ClusterOptions options = Quiet(8);
    options.seed = seed;
    Measurements measured = MeasureCluster(options);
    options.noise = 0.15;
    measured.latencies = MeasureCluster(options).latencies;
    LinkSamples& medians = measured.latencies->median_s;
    for (int a = 0; a < 8; ++a) {
      for (int b = 0; b < 8; ++b) {
        medians.at(a, b, 0) *= 20;
      }
    }
    medians.at(1, 2, 0) = 80e-6F;
    measured.patterns = {{"ring", "natural", 62e9, 96e9},
                         {"bisection", "lower and upper half", 62e9, 96e9}};
    const Analysis analysis = Analyze(measured, {});
    EXPECT_EQ(analysis.findings.size(), 0U) << Texts(analysis);
    // But so it is.
    medians.at(1, 2, 0) = 200e-6F;
    measured.patterns[1].bytes_per_s = 48e9;
    const Analysis other = Analyze(measured, {});
    EXPECT_TRUE(Says(other, "oversubscribed")) << Texts(other);
    EXPECT_TRUE(Says(other, "c01 ↔ c02 takes 200 µs")) << Texts(other);
  }
}

TEST(VerdictTest, WhatIsFineFollowsTheTolerance) {
  const std::vector<Fault> faults = {{Fault::Kind::kSender, 3, 0, 0.5},
                                     {Fault::Kind::kReceiver, 3, 0, 0.15}};
  AnalysisOptions options;
  options.tolerance = 0.25;
  const Analysis wide =
      Analyze(MeasureCluster(Quiet(8, faults), options.tolerance), options);
  ASSERT_EQ(Faults(wide).size(), 1U) << Texts(wide);
  EXPECT_TRUE(Says(wide, "receiving is fine")) << Texts(wide);
}

TEST(VerdictTest, OfALinkOnlyWhatIsFineIsSaidToBe) {
  const Measurements measured = MeasureCluster(Quiet(8));
  const auto said = [&](SlowPart::Kind kind, double other_way, double others) {
    SlowPart part;
    part.kind = kind;
    part.links = {{1, 2}};
    part.ratio = 0.5;
    part.other_way_ratio = other_way;
    part.others_ratio = others;
    return DescribePart(measured, 0, part, 0.1).text;
  };
  const auto has = [](const std::string& text, const std::string& words) {
    return text.find(words) != std::string::npos;
  };
  using Kind = SlowPart::Kind;
  EXPECT_TRUE(has(said(Kind::kLink, 0.95, 0.95),
                  ", the other way and both with others are fine: "));
  EXPECT_TRUE(has(said(Kind::kLink, 0.95, 0.85), ", the other way is fine: "));
  EXPECT_TRUE(
      has(said(Kind::kLink, 0.85, 0.95), ", both with others are fine: "));
  EXPECT_FALSE(has(said(Kind::kLink, 0.85, 0.85), "fine"));
  EXPECT_FALSE(has(said(Kind::kLink, NAN, NAN), "fine"));
  EXPECT_TRUE(has(said(Kind::kLinkBoth, 0.5, 0.95),
                  ", both ways, and both are fine with others: "));
  EXPECT_FALSE(has(said(Kind::kLinkBoth, 0.5, 0.85), "fine"));
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
  EXPECT_TRUE(Says(fine, "run it again to its end")) << Texts(fine);
}

TEST(VerdictTest, OfAnEndAmongLinksAloneWhatWasMeasuredAloneIsAFault) {
  Measurements measured =
      MeasureCluster(Quiet(8, {{Fault::Kind::kSender, 3, 0, 0.5},
                               {Fault::Kind::kDirection, 5, 6, 0.5}}));
  Measurements some = measured;
  std::erase_if(some.isolated,
                [](const Isolated& link) { return link.from == 3; });
  some.ending = Ending{"links alone", "", -1, "SIGINT"};
  const Analysis one = Analyze(some, {});
  ASSERT_EQ(Faults(one).size(), 1U) << Texts(one);
  EXPECT_TRUE(Says(one, "slow_direction: c05 → c06")) << Texts(one);
  EXPECT_TRUE(Says(one, "unverified: host c03 sends at")) << Texts(one);
  // With nothing to compare them with, it is none.
  Measurements bare = measured;
  std::erase_if(bare.isolated,
                [](const Isolated& link) { return link.control; });
  bare.ending = some.ending;
  EXPECT_EQ(Faults(Analyze(bare, {})).size(), 0U) << Texts(Analyze(bare, {}));
  // Later all is verified that is to be.
  some.patterns.push_back({"ring", "natural", 90e9, 96e9});
  some.ending->phase = "stress";
  EXPECT_EQ(Faults(Analyze(some, {})).size(), 2U) << Texts(Analyze(some, {}));
}

// --- What ends a test ---

TEST(EndingTest, WhoseCulpritIsNotKnownIsNoFaultAndSaysWhy) {
  for (const bool whole : {true, false}) {
    Measurements measured = MeasureCluster(Quiet(4));
    measured.EndBy(
        {StatusCode::kResourceExhausted, "rank 3: no memory for 4 MiB"},
        "stress", -1);
    for (int repeat = 0; repeat < 3 && !whole; ++repeat) {
      measured.planes[0].bytes_per_s.at(2, 3, repeat) = NAN;
    }
    const Analysis analysis = Analyze(measured, {});
    EXPECT_EQ(ExitStatus(analysis.verdict), 2) << Texts(analysis);
    EXPECT_EQ(Faults(analysis).size(), 0U) << Texts(analysis);
    EXPECT_TRUE(Says(analysis,
                     "the test ended while stress was measured: c03: "
                     "no memory for 4 MiB"))
        << Texts(analysis);
  }
}

TEST(EndingTest, RanksOfSeveralHostsAreNamedByThese) {
  ClusterOptions options = Quiet(4);
  options.ranks_per_host = 2;
  Measurements measured = MeasureCluster(options);
  const auto end_by = [&measured](const std::string& message) {
    measured.EndBy({StatusCode::kTimeout, message}, "latencies", -1);
    return Analyze(measured, {});
  };
  const Analysis several =
      end_by("rank(s) 0, 2 to 3, 7 of 8 did not call the barrier");
  EXPECT_EQ(several.verdict, Verdict::kUncertain) << Texts(several);
  EXPECT_TRUE(Says(several, "rank(s) 0, 2 to 3, 7 (c00, c01, c03) of 8 did"))
      << Texts(several);
  // All of one host: it is that one.
  const std::string of_one = "rank(s) 2, 3 of 8 did not call the barrier";
  const Analysis one = end_by(of_one);
  EXPECT_EQ(one.verdict, Verdict::kFaulty) << Texts(one);
  ASSERT_EQ(Faults(one).size(), 1U);
  EXPECT_EQ(Faults(one)[0].host, "c01");
  EXPECT_TRUE(Says(one, "host c01 was lost while latencies was measured"))
      << Texts(one);
  // Unless there is no other.
  for (Rank& rank : measured.ranks) {
    rank.host = "c00";
  }
  EXPECT_EQ(end_by(of_one).verdict, Verdict::kUncertain);
}

// What a message says of ranks that there are not is left as it is.
TEST(EndingTest, AMessageMayNameAnyRank) {
  Measurements measured = MeasureCluster(Quiet(4));
  for (const char* const message :
       {"rank 4: x", "rank 99999999999: x", "rank(s) 7 of 9", "rank(s) ",
        "rank ", "rank(s) 1 to 999999999", "rank(s) 3 to 1, 2, of 9"}) {
    measured.EndBy({StatusCode::kTimeout, message}, "stress", -1);
    EXPECT_TRUE(Says(Analyze(measured, {}), message));
  }
}

// Which has numbers of its own.
TEST(EndingTest, OfTheStressWithoutAHostNamesTheHostsThatItMeans) {
  ClusterOptions options = Quiet(4);
  options.ranks_per_host = 2;
  Measurements measured = MeasureCluster(options);
  measured.stress = Stress{};
  measured.stress->wrong = {{7, 0, 1, 100}, {4, 5, 1, 100}};
  const std::vector<int> left = {0, 1, 4, 5, 6, 7};  // without c01
  Measurements later;
  for (const int rank : left) {
    later.ranks.push_back(measured.ranks[rank]);
  }
  later.stress = Stress{};
  later.stress->wrong = {{2, 3, 1, 100}};
  later.EndBy({StatusCode::kTimeout, "rank(s) 4, 5 of 6 did not call"},
              "the stress test", -1);
  measured.TakeStress(later, left);
  const Analysis analysis = Analyze(measured, {});
  EXPECT_TRUE(Says(analysis, "host c03 was lost while the stress test"))
      << Texts(analysis);
  EXPECT_TRUE(Says(analysis, "rank(s) 4, 5 (c03) of 6")) << Texts(analysis);
  // And what was wrong before the loss stays so.
  EXPECT_TRUE(Says(analysis, "c02 rank 4 → c02 rank 5: 2 messages"))
      << Texts(analysis);
  EXPECT_TRUE(Says(analysis, "c03 rank 7 → c00 rank 0: 1 message"))
      << Texts(analysis);
}

// --- Each link alone ---

// Most links of the other hosts are then of one path.
TEST(VerdictTest, WhereOneHostHasMoreRanksAPathIsNotBlamedOnItsEnd) {
  using Kind = Fault::Kind;
  const std::vector<std::pair<Fault, std::set<std::string>>> cases = {
      {{Kind::kPath, 0, 1, 0.5}, {"c00 → c01 is slow", "c01 → c00 is slow"}},
      {{Kind::kPath, 2, 0, 0.5}, {"c00 → c02 is slow", "c02 → c00 is slow"}},
      {{Kind::kDirection, 0, 2, 0.5}, {"c00 → c02 is slow"}},
      {{Kind::kDirection, 2, 0, 0.5}, {"c02 → c00 is slow"}},
      // All links that share a cable in company are its own then, and alike.
      {{Kind::kHost, 0, 0, 0.5}, {"host c00 sends and receives"}},
      {{Kind::kHost, 2, 0, 0.5}, {"host c02 sends and receives"}},
      {{Kind::kSender, 2, 0, 0.5}, {"host c02 sends"}},
  };
  for (const int ranks : {3, 4, 6}) {
    for (const auto& [fault, words] : cases) {
      ClusterOptions options = Quiet(3, {fault});
      options.ranks_of_first_host = ranks;
      const Analysis analysis = Analyze(MeasureCluster(options), {});
      std::set<std::string> named;
      for (const Finding& finding : Faults(analysis)) {
        named.insert(finding.text.substr(
            0, std::min(finding.text.find(" at "), finding.text.find(": "))));
      }
      EXPECT_EQ(named, words) << ranks << ": " << Texts(analysis);
    }
  }
}

TEST(VerdictTest, WhereOneHostHasMoreRanksALongPathIsNotBlamedOnItsEnd) {
  ClusterOptions options = Quiet(3);
  options.ranks_of_first_host = 3;
  Measurements measured = MeasureCluster(options);
  for (int rank = 0; rank < 3; ++rank) {
    measured.latencies->median_s.at(rank, 4, 0) *= 4;
  }
  const Analysis analysis = Analyze(measured, {});
  EXPECT_TRUE(Says(analysis, "c00 rank 0 ↔ c02 takes")) << Texts(analysis);
  EXPECT_FALSE(Says(analysis, "answers after")) << Texts(analysis);
}

TEST(VerdictTest, TwoSlowLinksOfARankAreNoFaultInAnotherWay) {
  ClusterOptions options = Quiet(3);
  options.ranks_of_first_host = 3;
  Measurements measured = MeasureCluster(options);
  Plane other = measured.planes[0];
  other.name = "short messages";
  // And of two, one.
  for (const auto& [from, to] :
       {std::pair(3, 1), std::pair(4, 1), std::pair(1, 3)}) {
    for (int i = 0; i < other.bytes_per_s.repeats(); ++i) {
      other.bytes_per_s.at(from, to, i) /= 2;
    }
  }
  measured.planes.push_back(other);
  EXPECT_EQ(Faults(Analyze(measured, {})).size(), 0U)
      << Texts(Analyze(measured, {}));
}

// Duplex, and what a message costs, is what nothing else sees.
TEST(VerdictTest, AHostThatIsSlowInAnotherWayOnlyIsAFault) {
  for (const std::string way : {"short messages", "both ways at once"}) {
    Measurements measured = MeasureCluster(Quiet(8));
    Plane other =
        MeasureCluster(Quiet(8, {{Fault::Kind::kHost, 6, 0, 0.5}})).planes[0];
    other.name = way;
    measured.planes.push_back(other);
    const Analysis analysis = Analyze(measured, {});
    ASSERT_EQ(Faults(analysis).size(), 1U) << Texts(analysis);
    EXPECT_TRUE(analysis.findings[0].text.starts_with(
        way + ": host c06 sends and receives at "))
        << Texts(analysis);
    // Not twice.
    measured.planes[0] = other;
    EXPECT_EQ(Faults(Analyze(measured, {})).size(), 1U)
        << Texts(Analyze(measured, {}));
  }
}

// What buffers take at once says nothing of links; nor is what cannot be
// repeated alone a fault where it is little.
TEST(VerdictTest, AHostThatIsALittleSlowInAnotherWayOnlyIsNone) {
  for (const auto& [usual, loss, faults] :
       {std::tuple(24e9, 0.45, 0U), std::tuple(24e9, 0.7, 1U),
        std::tuple(12e9, 0.15, 0U), std::tuple(12e9, 0.25, 1U),
        std::tuple(6e9, 0.15, 0U), std::tuple(6e9, 0.25, 1U)}) {
    Measurements measured = MeasureCluster(Quiet(8));
    ClusterOptions other = Quiet(8, {{Fault::Kind::kHost, 6, 0, loss}});
    other.bytes_per_s = usual;
    measured.planes.push_back(MeasureCluster(other).planes[0]);
    measured.planes.back().name = "short messages";
    const Analysis analysis = Analyze(measured, {});
    EXPECT_EQ(Faults(analysis).size(), faults)
        << usual << ", " << loss << ": " << Texts(analysis);
  }
}

TEST(VerdictTest, AnotherFaultDoesNotHideAHostThatIsSlowBothWaysAtOnce) {
  for (const Fault& first : {Fault{Fault::Kind::kSender, 3, 0, 0.5},
                             Fault{Fault::Kind::kDirection, 1, 2, 0.5}}) {
    Measurements measured = MeasureCluster(Quiet(8, {first}));
    measured.planes.push_back(
        MeasureCluster(Quiet(8, {{Fault::Kind::kHost, 6, 0, 0.5},
                                 {Fault::Kind::kHost, 3, 0, 0.5}}))
            .planes[0]);
    measured.planes.back().name = "both ways at once";
    const Analysis analysis = Analyze(measured, {});
    EXPECT_TRUE(Says(analysis, "both ways at once: host c06 "))
        << Texts(analysis);
    EXPECT_EQ(Says(analysis, "both ways at once: host c03 "),
              first.kind == Fault::Kind::kDirection)
        << Texts(analysis);
  }
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

// What all of them share was busy meanwhile, so that beside them nothing would
// be slow.
TEST(VerdictTest, ControlsThatCarryLessAloneThanInCompanyAreMeasuredAgain) {
  Measurements measured =
      MeasureCluster(Quiet(8, {{Fault::Kind::kHost, 3, 0, 0.5}}));
  EXPECT_TRUE(ChooseAgain(measured, 0, 0.10).empty());
  std::vector<std::size_t> controls;
  for (std::size_t i = 0; i < measured.isolated.size(); ++i) {
    if (measured.isolated[i].control) {
      controls.push_back(i);
      for (double& rate : measured.isolated[i].bytes_per_s) {
        rate *= 0.4;
      }
    }
  }
  EXPECT_EQ(ChooseAgain(measured, 0, 0.10), controls);
}

}  // namespace
}  // namespace ringpipe::validate
