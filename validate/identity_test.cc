// Which cores the ranks of a host have, and which rank is lost, by messages as
// other parts of ringpipe word them.
#include "validate/identity.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace ringpipe::validate {
namespace {

Identity On(const std::string& host, std::vector<std::uint8_t> processors) {
  Identity identity;
  identity.host_name = "node";
  identity.host_id = host;
  identity.processors = std::move(processors);
  return identity;
}

std::vector<int> CoresOf(const std::vector<Identity>& identities) {
  std::vector<int> cores;
  for (const Rank& rank : NameRanks(identities)) {
    cores.push_back(rank.cores);
  }
  return cores;
}

TEST(IdentityTest, SurvivesTheJourney) {
  Identity own = On("boot", {0x80, 0, 0xFF});
  own.pid = 7;
  own.device = "host memory";
  const auto read = Identity::Parse(own.Serialize());
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->host_name, own.host_name);
  EXPECT_EQ(read->host_id, own.host_id);
  EXPECT_EQ(read->pid, own.pid);
  EXPECT_EQ(read->device, own.device);
  EXPECT_EQ(read->processors, own.processors);
  const auto unknown = Identity::Parse(On("boot", {}).Serialize());
  ASSERT_TRUE(unknown.ok()) << unknown.status().ToString();
  EXPECT_TRUE(unknown->processors.empty());
}

TEST(IdentityTest, OfAnotherVersionIsRefused) {
  const std::string others =
      R"({"host_name":"a","host_id":"b","pid":1,"device":"c")";
  EXPECT_TRUE(Identity::Parse(others + R"(,"processors":[1]})").ok());
  for (const std::string& text :
       {std::string(), others + "}", others + R"(,"cores":1})",
        others + R"(,"processors":1})"}) {
    EXPECT_EQ(Identity::Parse(text).status().code(), StatusCode::kMismatch)
        << text;
  }
}

TEST(CoresTest, AreThoseOfAllRanksOfTheHost) {
  EXPECT_EQ(CoresOf({On("a", {0b01}), On("a", {0b10})}),
            (std::vector<int>{2, 2}));
  // Of which one has a mask that is longer.
  EXPECT_EQ(CoresOf({On("a", {0b01}), On("a", {0, 0b1}), On("a", {0b10})}),
            (std::vector<int>{3, 3, 3}));
}

TEST(CoresTest, ThatRanksShareCountOnce) {
  EXPECT_EQ(CoresOf({On("a", {0b11}), On("a", {0b11})}),
            (std::vector<int>{2, 2}));
}

TEST(CoresTest, OfAnotherHostDoNotCountAlsoWhereItHasTheSameName) {
  EXPECT_EQ(CoresOf({On("a", {0b01}), On("b", {0b1110}), On("a", {0b10})}),
            (std::vector<int>{2, 3, 2}));
}

TEST(CoresTest, AreNotKnownWhereARankOfTheHostDoesNotKnowItsOwn) {
  EXPECT_EQ(CoresOf({On("a", {}), On("a", {0b01}), On("b", {0b1})}),
            (std::vector<int>{0, 0, 1}));
  EXPECT_EQ(CoresOf({On("a", {0b01}), On("a", {}), On("a", {0b10})}),
            (std::vector<int>{0, 0, 0}));
}

int LostBy(StatusCode code, const std::string& message) {
  return LostRank(Status(code, message));
}

TEST(LostRankTest, IsThePeerThatIsGoneAndNotTheOneThatSaysSo) {
  const auto lost = [](const std::string& message) {
    return LostBy(StatusCode::kPeerLost, message);
  };
  EXPECT_EQ(lost("rank 2 (pid 7) has died"), 2);
  EXPECT_EQ(lost("the connection of rank 0 to rank 3 failed: transport retry "
                 "counter exceeded"),
            3);
  EXPECT_EQ(lost("rank 1: the connection of rank 1 to rank 3 failed: flushed"),
            3);
  EXPECT_EQ(lost("barrier cannot complete: rank(s) 5 left"), 5);
}

TEST(LostRankTest, ATimeoutNamesOnlyWhoIsSilent) {
  const auto lost = [](const std::string& message) {
    return LostBy(StatusCode::kTimeout, message);
  };
  const std::string late =
      "send-receive of 4 bytes did not end by its deadline on rank 5, which "
      "waits for data from rank 3";
  EXPECT_EQ(lost(late + "; rank 3 does not answer: its process is stopped"), 3);
  EXPECT_EQ(lost(late + "; rank 3 has been at work in a call for 60.0 s"), -1);
  EXPECT_EQ(lost(late + "; no rank is silent or behind"), -1);
  EXPECT_EQ(lost("the bootstrap's all-gather did not complete by the deadline "
                 "of rank 5, and rank 0 does not say why"),
            -1);
  EXPECT_EQ(lost("rank(s) 2 of 3 did not call the bootstrap's barrier"), 2);
}

TEST(LostRankTest, OtherFailuresAreNoLoss) {
  EXPECT_EQ(LostBy(StatusCode::kAborted, "rank 3 aborted: no memory"), -1);
  EXPECT_EQ(LostBy(StatusCode::kResourceExhausted, "rank 3: no memory"), -1);
}

}  // namespace
}  // namespace ringpipe::validate
