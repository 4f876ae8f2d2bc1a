#include "bench/available_memory.h"

#include <gtest/gtest.h>

#include <utility>

namespace ringpipe {
namespace {

TEST(AvailableMemory, IsKnownHere) {
  ASSERT_TRUE(AvailableMemory().has_value());
  EXPECT_GT(*AvailableMemory(), 1u << 20);
}

TEST(AvailableMemory, TwoBuffersOfEachRankMustFit) {
  Options options;
  options.max_bytes = 1 << 20;
  EXPECT_TRUE(CheckMemory(options, 8, 0, 16 << 20).ok());
  const Status status = CheckMemory(options, 8, 0, (16 << 20) - 1);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("16M bytes"), std::string::npos);
  options.max_bytes = std::uint64_t{1} << 61;
  EXPECT_FALSE(CheckMemory(options, 1024, 0, std::uint64_t{1} << 40).ok());
}

TEST(AvailableMemory, WhatEachRankTakesBesidesMustFitToo) {
  Options options;
  options.max_bytes = 8;
  EXPECT_TRUE(CheckMemory(options, 64, BytesOfRank(64), 1 << 30).ok());
  const Status status =
      CheckMemory(options, 1000, BytesOfRank(1000), std::uint64_t{24} << 30);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("fewer ranks"), std::string::npos);
}

// By memory.max_usage_in_bytes of a control group in which so many ranks made
// allreduces of 8 bytes.
TEST(AvailableMemory, WhatARankTakesIsALittleMoreThanWasMeasured) {
  for (const auto& [ranks, measured_kib] :
       {std::pair(32, 2445), std::pair(64, 3156), std::pair(128, 4698),
        std::pair(400, 16384)}) {
    EXPECT_GE(BytesOfRank(ranks), measured_kib * 1024U) << ranks;
    EXPECT_LE(BytesOfRank(ranks), measured_kib * 1024U * 6 / 5) << ranks;
  }
  // Of 600 ranks no more is asked than such a host has.
  Options options;
  options.max_bytes = 8;
  EXPECT_TRUE(
      CheckMemory(options, 600, BytesOfRank(600), std::uint64_t{20} << 30)
          .ok());
}

TEST(AvailableMemory, BuffersThatTakeTurnsCountAllOfThem) {
  Options options;
  options.max_bytes = 1 << 20;
  options.rotate = 8;
  EXPECT_TRUE(CheckMemory(options, 2, 0, 32 << 20).ok());
  const Status status = CheckMemory(options, 2, 0, (32 << 20) - 1);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("16 buffers of 1M"), std::string::npos)
      << status.message();
  EXPECT_NE(status.message().find("a smaller --rotate"), std::string::npos)
      << status.message();
}

TEST(AvailableMemory, OfAGpusBuffersTheHostHasACopyOfOne) {
  Options options;
  options.max_bytes = 1 << 20;
  options.rotate = 8;
  options.memory = MemoryPlace::kDevice;
  EXPECT_TRUE(CheckMemory(options, 2, 0, 2 << 20).ok());
  const Status status = CheckMemory(options, 2, 0, (2 << 20) - 1);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("a copy of a buffer of 1M"),
            std::string::npos)
      << status.message();
  // It goes through slots, however short it is.
  options.max_bytes = 4;
  EXPECT_GT(BytesOfSlots(options, Environment(), 2), 0U);
}

TEST(AvailableMemory, LongMessagesNeedSlots) {
  Environment environment;
  Options options;
  options.max_bytes = 4096;
  EXPECT_EQ(BytesOfSlots(options, environment, 64), 0U);
  options.max_bytes = 4097;
  const std::uint64_t slots = BytesOfSlots(options, environment, 64);
  EXPECT_GT(slots, 30U << 20);
  EXPECT_LE(slots, 33U << 20);
  environment.slots = 256;
  environment.subchunk_bytes = 64 << 10;
  EXPECT_EQ(BytesOfSlots(options, environment, 64), 16U << 20);
  options.buffers = BufferKind::kAllocated;
  EXPECT_EQ(BytesOfSlots(options, environment, 64), 0U);
}

}  // namespace
}  // namespace ringpipe
