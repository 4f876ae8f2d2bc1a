#include "bench/rank_limits.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace ringpipe {
namespace {

TEST(RankLimits, OwnAreThoseToWhichTheRanksCanRaiseTheirs) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few = {100, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_EQ(RankLimits::Own().descriptors, before.rlim_max == RLIM_INFINITY
                                               ? RankLimits::kNone
                                               : before.rlim_max);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(RankLimits, EachRankNeedsDescriptorsForAllItsPeers) {
  const RankLimits limits = {.descriptors = 1024};
  EXPECT_TRUE(limits.Check(334).ok());
  const Status status = limits.Check(335);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "335 ranks on this host need 1027 open files each, and the limit "
            "is 1024; raise 'ulimit -n', or use fewer ranks");
}

TEST(RankLimits, AllRanksTogetherNeedProcesses) {
  const RankLimits limits = {.processes = 301};
  EXPECT_TRUE(limits.Check(100).ok());
  const Status status = limits.Check(101);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("ulimit -u"), std::string::npos);
}

}  // namespace
}  // namespace ringpipe
