#include "bench/bound_by.h"

#include <gtest/gtest.h>

namespace ringpipe {
namespace {

constexpr double kMs = 1e6;

// A rank on one core that is in calls for 100 ms and runs for `cpu_ms` of them.
// The times of the stages are milliseconds too.
RankLoad Load(std::map<std::string, StageTime> stages, double cpu_ms = 50,
              const std::string& host = "a", int core = 0) {
  RankLoad load;
  load.host = host;
  load.cores = {core};
  load.in_calls_ns = 100 * kMs;
  load.cpu_ns = cpu_ms * kMs;
  for (auto& [stage, time] : stages) {
    time.busy_ns *= kMs;
    time.wait_ns *= kMs;
  }
  load.stages = std::move(stages);
  return load;
}

std::vector<RankLoad> Two(const std::map<std::string, StageTime>& stages,
                          const std::string& other_host = "a") {
  return {Load(stages), Load(stages, 50, other_host, 1)};
}

std::string Verdict(const std::vector<RankLoad>& ranks,
                    bool registered = false) {
  return BoundBy(ranks, registered).value_or("nothing");
}

bool Begins(const std::string& text, const std::string& with) {
  return text.starts_with(with);
}

TEST(BoundBy, MoreRanksThanCoresThatKeepThemBusyAreBoundByTheProcessor) {
  std::vector<RankLoad> ranks(8, Load({{"receive", {1, 90}}}, 24));
  for (RankLoad& rank : ranks) {
    rank.cores = {0, 1};
  }
  EXPECT_EQ(Verdict(ranks),
            "the processor: 8 ranks share the 2 cores of host a, which had no "
            "time left; start fewer ranks, or use more cores");
  // Beside other work they get less, but ask for as much.
  for (RankLoad& rank : ranks) {
    rank.cpu_ns = 10 * kMs;
    rank.queued_ns = 14 * kMs;
  }
  EXPECT_TRUE(Begins(Verdict(ranks), "the processor"));
  // They sleep: it is not the processor.
  for (RankLoad& rank : ranks) {
    rank.queued_ns = 0;
  }
  EXPECT_EQ(Verdict(ranks), "nothing");
}

TEST(BoundBy, RanksThatArePinnedToCoresOfTheirOwnDoNotShareThem) {
  EXPECT_EQ(Verdict({Load({{"receive", {1, 60}}}, 100, "a", 0),
                     Load({{"receive", {1, 60}}}, 100, "a", 1)}),
            "nothing");
}

TEST(BoundBy, RanksThatStandInLineThoughThereAreCoresSufferFromOthers) {
  std::vector<RankLoad> ranks = Two({{"receive", {1, 60}}});
  ranks[0].queued_ns = ranks[1].queued_ns = 30 * kMs;
  EXPECT_TRUE(Begins(Verdict(ranks),
                     "waiting for a core of host a: ranks stood in line for "
                     "one 30 % of the time"))
      << Verdict(ranks);
}

TEST(BoundBy, TheOneRankThatWorksWhileOthersWaitIsNamed) {
  std::vector<RankLoad> ranks(4, Load({{"receive", {5, 80}}}));
  for (int rank = 0; rank < 4; ++rank) {
    ranks[rank].cores = {rank};
  }
  ranks[2] = Load({{"reduce", {60, 0}}, {"receive", {5, 10}}}, 50, "b", 2);
  EXPECT_EQ(Verdict(ranks),
            "rank 2 on host b: it works 90 % of the time in calls and the "
            "others 20 %, then they wait for it; look at its core, its memory "
            "and what else runs there");
}

TEST(BoundBy, RanksThatAreAllBusyAreBoundByTheirLongestStage) {
  EXPECT_EQ(Verdict(Two({{"reduce", {50, 0}}, {"copy out", {20, 0}}})),
            "reduce: 50 % of the time in calls, all stages 70 %; each rank "
            "reduces on one core: faster cores or memory help");
  const auto copying = Two({{"copy in", {61, 0}}});
  EXPECT_NE(Verdict(copying).find("-R 1"), std::string::npos);
  EXPECT_EQ(Verdict(copying, /*registered=*/true).find("-R 1"),
            std::string::npos);
  EXPECT_NE(Verdict(Two({{"register", {70, 0}}})).find("RINGPIPE_REGISTRATION"),
            std::string::npos);
  EXPECT_NE(Verdict(Two({{"send", {70, 0}}})).find("RINGPIPE_SUBCHUNK_BYTES"),
            std::string::npos);
}

TEST(BoundBy, WaitingForSlotsSaysWhichVariableHelps) {
  EXPECT_NE(Verdict(Two({{"acquire", {0, 40}}})).find("RINGPIPE_SLOTS"),
            std::string::npos);
}

TEST(BoundBy, WaitingForMessagesIsTheNetworksOnlyBetweenHosts) {
  const std::map<std::string, StageTime> stages = {{"receive", {1, 55}},
                                                   {"send", {1, 10}}};
  EXPECT_TRUE(Begins(Verdict(Two(stages, "b")),
                     "the network: ranks waited for messages 65 %"))
      << Verdict(Two(stages, "b"));
  EXPECT_EQ(Verdict(Two(stages)), "nothing");
}

TEST(BoundBy, WithoutEvidenceNothingIsSaid) {
  EXPECT_EQ(Verdict({}), "nothing");
  EXPECT_EQ(Verdict(Two({})), "nothing");
  RankLoad none = Load({{"reduce", {90, 0}}});
  none.in_calls_ns = 0;
  EXPECT_EQ(Verdict({none}), "nothing");
  RankLoad brief = Load({{"reduce", {0.9, 0}}});
  brief.in_calls_ns = 0.99 * kMs;
  EXPECT_EQ(Verdict({brief}), "nothing");
  brief.in_calls_ns = kMs;
  EXPECT_NE(Verdict({brief}), "nothing");
}

TEST(StageShares, AreNeverMoreThanTheWholeTime) {
  // Overlapping copies of an accelerator, and waits outside of the calls.
  const auto shares =
      StageShares(Two({{"copy in", {400, 0}}, {"receive", {0, 1056}}}));
  EXPECT_EQ(shares.at("copy in").busy, 1);
  EXPECT_EQ(shares.at("receive").wait, 1);
  EXPECT_EQ(StageShares({Load({{"send", {10, 20}}}), Load({})}).at("send").wait,
            0.1);
  // In the text neither.
  EXPECT_NE(Verdict(Two({{"copy in", {400, 0}}, {"reduce", {90, 0}}}))
                .find("copy in: 100 % of the time in calls, all stages 100 %"),
            std::string::npos);
}

}  // namespace
}  // namespace ringpipe
