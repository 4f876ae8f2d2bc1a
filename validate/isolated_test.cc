// Links that are measured one by one, with nothing else running: what that
// makes certain.
#include <algorithm>
#include <random>
#include <string>
#include <tuple>
#include <utility>
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
using testing::HostName;
using testing::MeasureCluster;
using testing::Quiet;
using testing::Says;
using testing::Texts;

// As --isolated does, where nothing disturbs it; what a link carries then.
template <typename Rate>
void IsolateAll(Measurements& measured, Rate rate, int passes = kAlonePasses) {
  const ToIsolate chosen =
      ChooseToIsolate(measured, 0, 0.1, kMostSuspects, /*all=*/true);
  measured.isolated.clear();
  for (int from = 0; from < measured.size(); ++from) {
    for (int to = 0; to < measured.size(); ++to) {
      Isolated link = {0, from, to, false, {}};
      link.control = std::count(chosen.controls.begin(), chosen.controls.end(),
                                Link(from, to)) > 0;
      for (int k = 0; k < passes * kPassMessages; ++k) {
        link.bytes_per_s.push_back(static_cast<float>(
            rate(from, to) * (1 + 0.002 * ((3 * from + 5 * to + 2 * k) % 7))));
      }
      if (from != to) {
        measured.isolated.push_back(link);
      }
    }
  }
}

// A third slower than others; contention leaves all of them half at most.
TEST(EachLinkAloneTest, APathThatContentionHidesIsFound) {
  ClusterOptions options = Quiet(16);
  options.leaf_hosts = 4;
  options.oversubscribed = 8;
  Measurements measured = MeasureCluster(options);
  IsolateAll(measured, [](int, int) { return 12e9; });
  EXPECT_EQ(Analyze(measured, {}).verdict, Verdict::kHealthy)
      << Texts(Analyze(measured, {}));
  const LinkClasses classes(measured, measured.planes[0]);
  for (const bool is_slower_in_company : {false, true}) {
    Link path = {-1, -1};
    for (const Link& link : classes.Of(2, 9).links) {
      const double ratio = classes.Ratio(link.first, link.second);
      path = (is_slower_in_company ? ratio < 0.6 : ratio > 0.95) ? link : path;
    }
    IsolateAll(measured, [path](int from, int to) {
      return Link(from, to) == path ? 8e9 : 12e9;
    });
    const Analysis analysis = Analyze(measured, {});
    ASSERT_EQ(Faults(analysis).size(), 1U) << Texts(analysis);
    const std::string name =
        HostName(path.first) + " → " + HostName(path.second);
    EXPECT_TRUE(Says(analysis, name + " alone is slow, at "))
        << Texts(analysis);
    EXPECT_TRUE(Says(analysis, is_slower_in_company
                                   ? " where others carry 6.0"
                                   : " where others carry 12."))
        << Texts(analysis);
    EXPECT_TRUE(Says(analysis, "(8.0")) << Texts(analysis);
  }
}

// What it has carried among others, it can carry.
TEST(EachLinkAloneTest, ALinkThatIsFastInCompanyIsNotSlow) {
  Measurements measured = MeasureCluster(Quiet(8));
  IsolateAll(measured, [](int from, int to) {
    return from == 2 && to == 5 ? 6e9 : 12e9;
  });
  EXPECT_EQ(Analyze(measured, {}).verdict, Verdict::kHealthy)
      << Texts(Analyze(measured, {}));
}

TEST(EachLinkAloneTest, MakesCertainWhatNoiseHides) {
  ClusterOptions options = Quiet(16);
  options.noise = 0.12;
  Measurements measured = MeasureCluster(options);
  const Analysis noisy = Analyze(measured, {});
  EXPECT_EQ(noisy.verdict, Verdict::kUncertain) << Texts(noisy);
  EXPECT_GT(noisy.could_tell, 0.15);
  EXPECT_TRUE(Says(noisy, "or with --isolated")) << Texts(noisy);
  IsolateAll(measured, [](int, int) { return 12e9; });
  const Analysis alone = Analyze(measured, {});
  EXPECT_EQ(alone.verdict, Verdict::kHealthy) << Texts(alone);
  EXPECT_EQ(alone.could_tell, 0.1);
  // In words too.
  EXPECT_EQ(alone.planes[0].could_tell, std::vector<double>({0.1}));
  EXPECT_EQ(noisy.planes[0].could_tell,
            std::vector<double>({noisy.could_tell}));
}

// As where streams of TCP share a cable, and not alike.
TEST(EachLinkAloneTest, IsDoneUnaskedWhereCompanyIsNoisyAndLinksAreFew) {
  for (const auto& [ranks_per_host, verdict] :
       {std::pair(2, Verdict::kHealthy), std::pair(4, Verdict::kUncertain)}) {
    ClusterOptions options = Quiet(4);
    options.ranks_per_host = ranks_per_host;
    options.noise = 0.15;
    options.alone_noise = 0.01;
    const Analysis analysis = Analyze(MeasureCluster(options), {});
    EXPECT_EQ(analysis.verdict, verdict) << Texts(analysis);
  }
}

// Of whom what is slow only alone is not called slow.
TEST(EachLinkAloneTest, OfFewRanksTakesMorePasses) {
  for (const auto& [ranks, passes] :
       {std::pair(3, 6), std::pair(4, 4), std::pair(6, 3)}) {
    ClusterOptions options = Quiet(ranks);
    options.noise = 0.25;
    Measurements measured = MeasureCluster(options);
    for (const bool enough : {false, true}) {
      IsolateAll(
          measured, [](int, int) { return 12e9; },
          enough ? passes : passes - 1);
      const Analysis alone = Analyze(measured, {});
      EXPECT_EQ(alone.verdict, enough ? Verdict::kHealthy : Verdict::kUncertain)
          << ranks << ": " << Texts(alone);
    }
    EXPECT_EQ(LeastPasses(ranks, ranks * (ranks - 1)), passes);
  }
}

// What noise makes of three messages: it disturbs one, or all of them.
void AddPass(std::mt19937_64& random, bool disturbs_all, float rate,
             Isolated& link) {
  std::bernoulli_distribution is_disturbed(0.3);
  std::uniform_real_distribution<float> part(0.1F, 0.6F);
  const bool busy = is_disturbed(random);
  for (int k = 0; k < kPassMessages; ++k) {
    const bool slow = disturbs_all ? busy : is_disturbed(random);
    link.bytes_per_s.push_back(rate * (slow ? part(random) : 1));
  }
}

// Also where contention hides what links can carry; and what is slow there is
// not called healthy.
TEST(EachLinkAloneTest, NoiseIsNoFaultAndHidesNone) {
  for (std::uint64_t seed = 1; seed <= 80; ++seed) {
    ClusterOptions options = Quiet(16);
    options.seed = seed;
    options.leaf_hosts = 4;
    options.oversubscribed = seed % 2 == 0 ? 8 : 1;
    const bool is_slow = options.oversubscribed > 1 && seed > 40;
    Measurements measured = MeasureCluster(options);
    std::mt19937_64 random(seed);
    IsolateAll(measured, [](int, int) { return 12e9; });
    std::vector<std::size_t> turn;
    for (std::size_t i = 0; i < measured.isolated.size(); ++i) {
      measured.isolated[i].bytes_per_s.clear();
      turn.push_back(i);
    }
    for (int pass = 0; pass < kMostAlonePasses; ++pass) {
      for (const std::size_t i : turn) {
        Isolated& link = measured.isolated[i];
        const bool is_it = is_slow && link.from == 2 && link.to == 9;
        AddPass(random, seed % 4 < 2, is_it ? 6e9F : 12e9F, link);
      }
      turn = pass + 1 < kAlonePasses ? turn : ChooseAgain(measured, 0, 0.1);
    }
    const Analysis analysis = Analyze(measured, {});
    EXPECT_LE(Faults(analysis).size(), is_slow ? 1U : 0U) << Texts(analysis);
    EXPECT_TRUE(!is_slow || analysis.verdict != Verdict::kHealthy)
        << Texts(analysis);
  }
}

TEST(EachLinkAloneTest, IsNoAdviceWhereItWasDoneOrAHostIsBusy) {
  Measurements measured = MeasureCluster(
      Quiet(8, {{.kind = Fault::Kind::kSender, .a = 3, .loss = 0.4}}));
  for (Isolated& link : measured.isolated) {
    link.queued.assign(link.bytes_per_s.size() / 3,
                       {link.from == 3 ? 0.9 : 0.01, link.to == 3 ? 0.9 : 0.0});
  }
  const Analysis busy = Analyze(measured, {});
  EXPECT_EQ(busy.verdict, Verdict::kUncertain) << Texts(busy);
  EXPECT_FALSE(Says(busy, "--isolated")) << Texts(busy);
}

// In company links share cables, and not alike; alone those of the slow host,
// which company does not tell from the others, carry 15 % less.
Measurements NoisyInCompany(std::uint64_t seed) {
  ClusterOptions options = Quiet(4, {{Fault::Kind::kHost, 2, 0, 0.15}});
  options.ranks_per_host = 2;
  options.noise = 0.15;
  options.seed = seed;
  Measurements measured = MeasureCluster(options);
  IsolateAll(measured, [](int from, int to) {
    return from / 2 == 2 || to / 2 == 2 ? 10e9 : 12e9;
  });
  return measured;
}

bool IsSlow(const Isolated& link) {
  return link.from / 2 == 2 || link.to / 2 == 2;
}

TEST(EachLinkAloneTest, DecidesWhereCompanyIsNoisyWhateverTheControls) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Measurements measured = NoisyInCompany(seed);
    for (Isolated& link : measured.isolated) {
      link.control = IsSlow(link);
    }
    const Analysis analysis = Analyze(measured, {});
    ASSERT_EQ(Faults(analysis).size(), 1U) << Texts(analysis);
    EXPECT_TRUE(Says(analysis, "host c02 sends and receives at 10.1 GB/s"))
        << Texts(analysis);
  }
}

// Something that a host did meanwhile: among others its links carried more.
TEST(EachLinkAloneTest, WhatCarriedMoreInCompanyIsNoFault) {
  ClusterOptions options = Quiet(4);
  options.ranks_per_host = 2;
  options.noise = 0.15;
  Measurements measured = MeasureCluster(options);
  IsolateAll(measured, [](int from, int to) {
    return from / 2 == 2 || to / 2 == 2 ? 7e9 : 12e9;
  });
  const Analysis analysis = Analyze(measured, {});
  EXPECT_EQ(analysis.verdict, Verdict::kUncertain) << Texts(analysis);
}

// A host whose card cannot do all at once what each link can.
TEST(EachLinkAloneTest, WhatIsSlowInCompanyAloneIsNotedAsContention) {
  Measurements measured = NoisyInCompany(1);
  LinkSamples& samples = measured.planes[0].bytes_per_s;
  for (Isolated& link : measured.isolated) {
    for (int k = 0; k < samples.repeats() && IsSlow(link); ++k) {
      samples.at(link.from, link.to, k) *= 0.6F;
    }
  }
  IsolateAll(measured, [](int, int) { return 12e9; });
  const Analysis analysis = Analyze(measured, {});
  EXPECT_EQ(analysis.verdict, Verdict::kHealthy) << Texts(analysis);
  EXPECT_TRUE(Says(analysis, "are slow only while others are in use: "))
      << Texts(analysis);
}

// A host that lacks less than the tolerance.
TEST(EachLinkAloneTest, APathOfANearlySlowHostIsFound) {
  Measurements measured = NoisyInCompany(1);
  IsolateAll(measured, [](int from, int to) {
    return from == 4 && to == 0           ? 9e9
           : from / 2 == 2 || to / 2 == 2 ? 11e9
                                          : 12e9;
  });
  const Analysis analysis = Analyze(measured, {});
  ASSERT_EQ(Faults(analysis).size(), 1U) << Texts(analysis);
  EXPECT_TRUE(Says(analysis, "c02 rank 4 → c00 rank 0 alone is slow"))
      << Texts(analysis);
}

// But for what waits more than they do.
TEST(EachLinkAloneTest, WaitsForCoresThatSlowNoOtherLinksAreNoExcuse) {
  for (const auto& [others, slow, verdict] :
       {std::tuple(0.5, 0.4, Verdict::kFaulty),
        std::tuple(0.1, 0.4, Verdict::kUncertain),
        std::tuple(0.5, 0.9, Verdict::kUncertain)}) {
    Measurements measured = NoisyInCompany(1);
    for (Isolated& link : measured.isolated) {
      link.queued.assign(kAlonePasses, {IsSlow(link) ? slow : others, others});
    }
    const Analysis analysis = Analyze(measured, {});
    EXPECT_EQ(analysis.verdict, verdict) << Texts(analysis);
  }
}

TEST(EachLinkAloneTest, WaitsForCoresThatSlowOtherLinksAreAnExcuse) {
  Measurements measured = NoisyInCompany(1);
  for (Isolated& link : measured.isolated) {
    link.queued.assign(kAlonePasses, {0.5, 0.5});
    for (int k = 0; k < kPassMessages && !IsSlow(link); ++k) {
      link.bytes_per_s[k] *= (link.from + link.to) % 3 == 0 ? 0.7F : 1;
    }
  }
  const Analysis analysis = Analyze(measured, {});
  EXPECT_EQ(analysis.verdict, Verdict::kUncertain) << Texts(analysis);
}

}  // namespace
}  // namespace ringpipe::validate
