#include "bench/available_memory.h"

#include <gtest/gtest.h>

namespace ringpipe {
namespace {

TEST(AvailableMemory, IsKnownHere) {
  ASSERT_TRUE(AvailableMemory().has_value());
  EXPECT_GT(*AvailableMemory(), 1u << 20);
}

TEST(AvailableMemory, TwoBuffersOfEachRankMustFit) {
  Options options;
  options.max_bytes = 1 << 20;
  EXPECT_TRUE(CheckMemory(options, 8, 16 << 20).ok());
  const Status status = CheckMemory(options, 8, (16 << 20) - 1);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("16M bytes"), std::string::npos);
  options.max_bytes = std::uint64_t{1} << 61;
  EXPECT_FALSE(CheckMemory(options, 1024, std::uint64_t{1} << 40).ok());
}

}  // namespace
}  // namespace ringpipe
