#include "verbs/memlock.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <limits>

namespace ringpipe::verbs {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

TEST(MemlockTest, ExactlyTheLimitIsAllowedAndOneByteMoreIsNot) {
  EXPECT_TRUE(CheckMemlock(6 * kMiB, 2 * kMiB, 8 * kMiB).ok());
  const Status status = CheckMemlock(6 * kMiB + 1, 2 * kMiB, 8 * kMiB);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
}

TEST(MemlockTest, NoLimitAllowsEverything) {
  EXPECT_TRUE(CheckMemlock(std::numeric_limits<std::uint64_t>::max(), kMiB,
                           RLIM_INFINITY)
                  .ok());
}

TEST(MemlockTest, SumsThatOverflowAreRefused) {
  EXPECT_FALSE(
      CheckMemlock(std::numeric_limits<std::uint64_t>::max(), kMiB, 8 * kMiB)
          .ok());
}

TEST(MemlockTest, ALimitLoweredBelowWhatIsPinnedRefuses) {
  EXPECT_FALSE(CheckMemlock(1, 2 * kMiB, kMiB).ok());
}

TEST(MemlockTest, TheMessageSaysWhatIsNeededAndHowToRaiseIt) {
  const std::string message = CheckMemlock(9000, 200, 8192).message();
  for (const char* part : {"9000", "200", "8192", "ulimit -l unlimited",
                           "limits.conf", "LimitMEMLOCK", "memlock=-1"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part;
  }
}

TEST(MemlockTest, WhatIsPinnedIsReadFromTheProcessStatus) {
  const MemlockUse use = ParseMemlockUse(
      "Name:\tprogram\nVmLck:\t      64 kB\nVmPin:\t     128 kB\n"
      "CapPrm:\t000001ffffffffff\nCapEff:\t0000000000003fff\n");
  EXPECT_EQ(use.pinned_bytes, 128u * 1024);
  EXPECT_FALSE(use.exempt);
}

TEST(MemlockTest, CapIpcLockExempts) {
  EXPECT_TRUE(ParseMemlockUse("CapEff:\t0000000000004000\n").exempt);
  EXPECT_FALSE(ParseMemlockUse("CapEff:\t0000000000008000\n").exempt);
}

TEST(MemlockTest, AnEmptyStatusIsNothingPinnedAndNoExemption) {
  const MemlockUse use = ParseMemlockUse("");
  EXPECT_EQ(use.pinned_bytes, 0u);
  EXPECT_FALSE(use.exempt);
}

}  // namespace
}  // namespace ringpipe::verbs
