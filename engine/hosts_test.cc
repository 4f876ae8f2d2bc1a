#include "engine/hosts.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace ringpipe {
namespace {

TEST(HostIdentityTest, IsNotGuessedWhereTheKernelDoesNotTellIt) {
  const auto identity = HostIdentity(Environment(), "/nowhere");
  EXPECT_EQ(identity.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(identity.status().message().find("RINGPIPE_HOST_ID"),
            std::string::npos);
}

TEST(HostIdentityTest, IsTheSameForOneProcessAndOverridden) {
  Environment environment;
  const std::string own = *HostIdentity(environment);
  EXPECT_EQ(*HostIdentity(environment), own);
  environment.host_id = "rack7";
  EXPECT_NE(*HostIdentity(environment), own);
  EXPECT_NE(HostIdentity(environment)->find("rack7"), std::string::npos);
}

TEST(ResidenceTest, SharesMemoryUnlessToldOtherwise) {
  Environment environment;
  environment.host_memory = "auto";
  EXPECT_TRUE(Residence::Own(environment)->shares_memory);
  // The rails between hosts.
  environment.device = "mlx5_0";
  EXPECT_TRUE(Residence::Own(environment)->shares_memory);
  environment.device = "soft";
  EXPECT_FALSE(Residence::Own(environment)->shares_memory);
  environment.device = "auto";
  environment.host_memory = "never";
  EXPECT_FALSE(Residence::Own(environment)->shares_memory);
}

TEST(ResidenceTest, SurvivesTheJourney) {
  const Residence own = *Residence::Own(Environment());
  EXPECT_NE(own.processors, "");
  const Residence read = *Residence::Parse(own.Serialize());
  EXPECT_EQ(read.host, own.host);
  EXPECT_EQ(read.shares_memory, own.shares_memory);
  EXPECT_EQ(read.processors, own.processors);
}

TEST(ResidenceTest, IsNotBelievedWhereItIsCutOrTooLong) {
  const std::string text = Residence{"a", false, "\3"}.Serialize();
  for (std::size_t bytes = 0; bytes < text.size(); ++bytes) {
    EXPECT_EQ(Residence::Parse(text.substr(0, bytes)).status().code(),
              StatusCode::kMismatch);
  }
  EXPECT_FALSE(Residence::Parse(text + "x").ok());
  EXPECT_FALSE(
      Residence::Parse(Residence{"", false, std::string(5000, 'x')}.Serialize())
          .ok());
}

constexpr char kOne[] = "\1";
constexpr char kOther[] = "\2";

TEST(HostsTest, RanksOfOneHostShareMemory) {
  const std::vector<Residence> ranks = {
      {"a", true, kOne}, {"b", true, kOne}, {"a", true, kOther}};
  const Hosts first = *FindHosts(ranks, 0);
  EXPECT_EQ(first.in_memory, (std::vector<bool>{true, false, true}));
  EXPECT_FALSE(first.all_in_memory);
  EXPECT_EQ(first.ranks_here, 2);
  const Hosts alone = *FindHosts(ranks, 1);
  EXPECT_EQ(alone.in_memory, std::vector<bool>(3));
  EXPECT_EQ(alone.ranks_here, 1);
  EXPECT_EQ(alone.of_rank, (std::vector<std::string>{"a", "b", "a"}));
  EXPECT_EQ(alone.numbers, (std::vector<int>{0, 1, 0}));
}

TEST(HostsTest, OneRankNeedsNoMemoryOfItsHost) {
  EXPECT_FALSE(FindHosts({{"a", true, kOne}}, 0)->all_in_memory);
}

TEST(HostsTest, RanksOfOneHostThatDifferAreAnErrorThatNamesThem) {
  const std::vector<Residence> ranks = {
      {"b", false, kOne}, {"a", true, kOne}, {"a", false, kOne}};
  for (const int rank : {0, 1, 2}) {
    const Status status = FindHosts(ranks, rank).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("rank 1 shares"), std::string::npos)
        << status.message();
    EXPECT_NE(status.message().find("rank 2 of the same host does not"),
              std::string::npos);
  }
}

TEST(HostsTest, AreOversubscribedWithFewerProcessorsThanRanks) {
  // Each bound to its own, both to one, each to both, one on each host,
  // unknown.
  EXPECT_FALSE(
      FindHosts({{"a", true, kOne}, {"a", true, kOther}}, 0)->oversubscribed());
  EXPECT_TRUE(
      FindHosts({{"a", true, kOne}, {"a", true, kOne}}, 0)->oversubscribed());
  EXPECT_FALSE(
      FindHosts({{"a", true, "\3"}, {"a", true, "\3"}}, 0)->oversubscribed());
  EXPECT_FALSE(
      FindHosts({{"a", true, kOne}, {"b", true, kOne}}, 0)->oversubscribed());
  const Hosts unknown = *FindHosts({{"a", true, ""}, {"a", true, ""}}, 0);
  EXPECT_TRUE(unknown.oversubscribed());
  EXPECT_EQ(unknown.processors, 0);
}

TEST(HostsTest, AreCommonToAllWhereAllShareMemory) {
  const CommonHost both =
      FindHosts({{"a", true, kOne}, {"a", true, kOther}}, 1)->common();
  EXPECT_EQ(both.ranks, 2);
  EXPECT_EQ(both.processors, 2);
  for (const auto& ranks :
       {std::vector<Residence>{{"a", true, kOne}, {"b", true, kOne}},
        std::vector<Residence>{{"a", false, kOne}, {"a", false, kOne}}}) {
    EXPECT_EQ(FindHosts(ranks, 0)->common().ranks, 0);
  }
}

}  // namespace
}  // namespace ringpipe
