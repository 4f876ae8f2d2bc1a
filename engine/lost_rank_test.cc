#include "engine/lost_rank.h"

#include "gtest/gtest.h"

namespace ringpipe {
namespace {

int LostBy(const std::string& message) {
  return LostRank({StatusCode::kPeerLost, message});
}

TEST(LostRankTest, IsThePeerThatIsGoneAndNotTheOneThatSaysSo) {
  EXPECT_EQ(LostBy("rank 2 (pid 7) has died"), 2);
  EXPECT_EQ(LostBy("rank 1: rank 2 (pid 7) has died"), 2);
  EXPECT_EQ(
      LostBy("rank 1: the connection of rank 1 to rank 3 failed: flushed"), 3);
  EXPECT_EQ(LostBy("rank 7 (pid 1 on host x) is slow; rank 4 does not answer"),
            4);
  EXPECT_EQ(LostBy("rank 65535 can no longer be reached from rank 0: gone"),
            65'535);
  EXPECT_EQ(LostBy("the bootstrap's barrier cannot complete: rank(s) 5 have "
                   "left the job"),
            5);
}

TEST(LostRankTest, OtherFailuresAreNoLoss) {
  EXPECT_EQ(LostRank(Status::Ok()), -1);
  EXPECT_EQ(LostRank({StatusCode::kAborted, "rank 3 aborted: enough"}), -1);
  EXPECT_EQ(LostBy("nobody knows who"), -1);
  EXPECT_EQ(LostBy("rank 12345678 (pid 7) has died"), -1);
}

}  // namespace
}  // namespace ringpipe
