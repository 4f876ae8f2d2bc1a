#include "validate/test_pattern.h"

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace ringpipe::validate {
namespace {

constexpr std::size_t kWords = 1000;
constexpr std::size_t kBytes = kWords * sizeof(std::uint64_t);

// Of the pattern of `seed`, with these bytes flipped.
std::uint64_t WrongAfterFlipping(const std::vector<std::size_t>& flipped,
                                 std::uint64_t seed) {
  std::vector<std::uint64_t> words(kWords);
  FillPattern(words.data(), kBytes, seed);
  auto* const bytes = reinterpret_cast<unsigned char*>(words.data());
  for (const std::size_t at : flipped) {
    bytes[at] ^= 1U << at % 8;
  }
  return CountWrongBytes(words.data(), kBytes, seed);
}

TEST(TestPatternTest, EveryWrongByteIsCounted) {
  EXPECT_EQ(WrongAfterFlipping({}, 7), 0U);
  EXPECT_EQ(WrongAfterFlipping({0}, 7), 1U);
  EXPECT_EQ(WrongAfterFlipping({kBytes - 1}, 7), 1U);
  EXPECT_EQ(WrongAfterFlipping({8, 15, 16, 4001}, 7), 4U);
}

TEST(TestPatternTest, AnotherMessagesBytesAreWrong) {
  std::vector<std::uint64_t> words(kWords);
  FillPattern(words.data(), kBytes, PatternSeed(1, 2, 3));
  for (const std::uint64_t seed :
       {PatternSeed(2, 1, 3), PatternSeed(1, 2, 4), PatternSeed(0, 2, 3)}) {
    EXPECT_GT(CountWrongBytes(words.data(), kBytes, seed), kBytes * 9 / 10);
  }
}

// As if a word had arrived at its neighbour's place.
TEST(TestPatternTest, ShiftedBytesAreWrong) {
  std::vector<std::uint64_t> words(kWords + 1);
  FillPattern(words.data(), kBytes + 8, 7);
  EXPECT_GT(CountWrongBytes(words.data() + 1, kBytes, 7), kBytes / 2);
}

TEST(TestPatternTest, MessagesHaveSeedsOfTheirOwn) {
  std::set<std::uint64_t> seeds;
  for (int from = 0; from < 20; ++from) {
    for (int to = 0; to < 20; ++to) {
      for (std::uint64_t message = 0; message < 20; ++message) {
        seeds.insert(PatternSeed(from, to, message));
      }
    }
  }
  EXPECT_EQ(seeds.size(), 20U * 20 * 20);
}

}  // namespace
}  // namespace ringpipe::validate
