// Which rank is lost, by messages as other parts of ringpipe word them.
#include "validate/identity.h"

#include <string>

#include "gtest/gtest.h"

namespace ringpipe::validate {
namespace {

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
