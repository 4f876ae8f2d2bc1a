#include "engine/culprit.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ringpipe {
namespace {

using std::chrono::milliseconds;
using Place = Whereabouts::Place;
using Ranks = std::vector<std::optional<Answer>>;

constexpr std::uint64_t kCalls = 7;

Answer InCall(std::vector<int> waits_for, int since_ms = 3000) {
  return {Place::kInCall, kCalls, milliseconds(since_ms), std::move(waits_for)};
}

// Each of a ring's ranks waits for both neighbours, but `culprit`.
Ranks RingOfEight(int culprit, std::optional<Answer> says) {
  Ranks ranks;
  for (int rank = 0; rank < 8; ++rank) {
    ranks.emplace_back(InCall({(rank + 7) % 8, (rank + 1) % 8}));
  }
  ranks[culprit] = std::move(says);
  return ranks;
}

TEST(CulpritTest, SilentRankIsFoundFromAnywhere) {
  const Ranks ranks = RingOfEight(5, std::nullopt);
  for (const int asker : {0, 1, 2, 3, 4, 6, 7}) {
    const std::string text = DescribeCulprit(ranks, asker);
    EXPECT_TRUE(
        text.starts_with("; rank 5 does not answer, and others have waited "
                         "for it for 3.0 s: its process is stopped"))
        << text;
  }
  EXPECT_NE(DescribeCulprit(ranks, 0).find(
                "(found by way of rank 7, which waits for rank 6)"),
            std::string::npos)
      << DescribeCulprit(ranks, 0);
}

TEST(CulpritTest, RankZeroThatIsSilentMakesAllOthersSo) {
  Ranks ranks(4);
  ranks[2] = InCall({1, 3});
  EXPECT_TRUE(DescribeCulprit(ranks, 2).starts_with(
      "; rank 0 does not answer (and only rank 0 can ask the others)"))
      << DescribeCulprit(ranks, 2);
}

TEST(CulpritTest, WhoHasNotMadeTheCallIsNamed) {
  const Ranks ranks = RingOfEight(
      3, Answer{Place::kOutside, kCalls - 1, milliseconds(12'345), {}});
  EXPECT_TRUE(DescribeCulprit(ranks, 0).starts_with(
      "; rank 3 has not made this call: it has been outside of calls for "
      "12.3 s"))
      << DescribeCulprit(ranks, 0);
}

TEST(CulpritTest, WhoseStreamIsLateIsNamed) {
  const Ranks ranks = RingOfEight(
      3, Answer{Place::kAwaitsStream, kCalls, milliseconds(12'345), {}});
  EXPECT_TRUE(DescribeCulprit(ranks, 0).starts_with(
      "; rank 3 has waited for 12.3 s for its stream to do what it was given "
      "before this call"))
      << DescribeCulprit(ranks, 0);
  EXPECT_EQ(Answer::Decode(ranks[3]->Encode())->place, Place::kAwaitsStream);
}

TEST(CulpritTest, WhoDestroysIsNamed) {
  const Ranks ranks = RingOfEight(
      1, Answer{Place::kLeaving, kCalls - 1, milliseconds(500), {}});
  EXPECT_TRUE(DescribeCulprit(ranks, 6).starts_with(
      "; rank 1 has been destroying its communicator for 0.5 s while others"))
      << DescribeCulprit(ranks, 6);
}

TEST(CulpritTest, SilenceExplainsMoreThanBeingLate) {
  Ranks ranks = RingOfEight(5, std::nullopt);
  ranks[1] = Answer{Place::kOutside, kCalls - 1, milliseconds(10), {}};
  EXPECT_TRUE(DescribeCulprit(ranks, 0).starts_with("; rank 5 does not"));
}

TEST(CulpritTest, WhoIsNotOnTheWayIsFoundAllTheSame) {
  Ranks ranks = {InCall({}), InCall({0}), std::nullopt, InCall({1})};
  ranks[0]->waits_for = {1};
  EXPECT_TRUE(DescribeCulprit(ranks, 0).starts_with("; rank 2 does not answer"))
      << DescribeCulprit(ranks, 0);
}

TEST(CulpritTest, WhoIsDoneWithTheCallIsNoCulprit) {
  Ranks ranks =
      RingOfEight(1, Answer{Place::kOutside, kCalls, milliseconds(10), {}});
  EXPECT_EQ(DescribeCulprit(ranks, 0), "; no rank is silent or behind");
  ranks[4] = InCall({});
  EXPECT_TRUE(DescribeCulprit(ranks, 0).starts_with(
      "; rank 4 has been at work in a call"));
}

TEST(CulpritTest, AnswersReadBackAndGarbageDoesNot) {
  const Answer answer = InCall({3, 5}, 1234);
  const std::optional<Answer> read = Answer::Decode(answer.Encode());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->place, Place::kInCall);
  EXPECT_EQ(read->calls, kCalls);
  EXPECT_EQ(read->since, milliseconds(1234));
  EXPECT_EQ(read->waits_for, (std::vector<int>{3, 5}));
  EXPECT_FALSE(Answer::Decode(""));
  EXPECT_FALSE(Answer::Decode(answer.Encode() + "x"));
  EXPECT_FALSE(Answer::Decode(std::string(18, '\x7f')));
  // Ranks that there are not.
  Ranks ranks = {InCall({1}), InCall({-1, 99})};
  EXPECT_EQ(DescribeCulprit(ranks, 0), "; no rank is silent or behind");
}

}  // namespace
}  // namespace ringpipe
