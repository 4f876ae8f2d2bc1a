#include "pipeline/call_check.h"

#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/status.h"
#include "gtest/gtest.h"

namespace ringpipe {
namespace {

using When = CallCheck::When;

constexpr int kPeer = 3;

std::string DescribeForTest(const Digest& digest) {
  return "call(count " + std::to_string(digest.count) + ")";
}

Digest Call(std::uint64_t sequence, std::uint64_t count) {
  Digest digest;
  digest.sequence = sequence;
  digest.count = count;
  return digest;
}

// Of rank 0, which has begun the calls up to `last`, of 10 elements each.
CallCheck BegunUpTo(std::uint64_t last) {
  CallCheck check(0, &DescribeForTest);
  for (std::uint64_t sequence = 0; sequence <= last; ++sequence) {
    check.Begin(Call(sequence, 10));
  }
  return check;
}

void ExpectWhen(const CallCheck& check, const Digest& digest, When expected) {
  const Result<When> when = check.Compare(kPeer, digest);
  ASSERT_TRUE(when.ok()) << when.status().ToString();
  EXPECT_EQ(*when, expected);
}

void ExpectMismatch(const CallCheck& check, const Digest& digest,
                    const std::string& words) {
  const Result<When> when = check.Compare(kPeer, digest);
  ASSERT_FALSE(when.ok());
  EXPECT_EQ(when.status().code(), StatusCode::kMismatch);
  EXPECT_NE(when.status().message().find(words), std::string::npos)
      << when.status().ToString();
}

TEST(CallCheckTest, ThePeersCallIsPastNowOrLater) {
  const CallCheck check = BegunUpTo(6);
  ExpectWhen(check, Call(0, 10), When::kPast);
  ExpectWhen(check, Call(5, 10), When::kPast);
  ExpectWhen(check, Call(6, 10), When::kNow);
  ExpectWhen(check, Call(7, 10), When::kLater);
}

TEST(CallCheckTest, BeforeTheFirstCallAllAreLater) {
  ExpectWhen(CallCheck(0, &DescribeForTest), Call(0, 10), When::kLater);
}

TEST(CallCheckTest, ALaterCallIsComparedOnlyOnceThisRankHasBegunIt) {
  CallCheck check = BegunUpTo(6);
  ExpectWhen(check, Call(7, 11), When::kLater);
  check.Begin(Call(7, 10));
  ExpectMismatch(check, Call(7, 11), "call number 7 ");
}

TEST(CallCheckTest, AMismatchNamesBothCalls) {
  const CallCheck check = BegunUpTo(6);
  ExpectMismatch(check, Call(6, 11),
                 "collective call number 6 differs between ranks in count: "
                 "rank 0 "
                 "called call(count 10), rank 3 called call(count 11)");
  ExpectMismatch(check, Call(2, 11), "collective call number 2 differs");
}

TEST(CallCheckTest, EveryWordOfTheDigestCounts) {
  const CallCheck check = BegunUpTo(6);
  using Change = void (*)(Digest&);
  for (const auto& [change, name] : {
           std::pair<Change, const char*>(
               [](Digest& digest) { digest.collective = 1; }, "collective"),
           {[](Digest& digest) { digest.algorithm = 1; }, "algorithm"},
           {[](Digest& digest) { digest.type = 1; }, "type"},
           {[](Digest& digest) { digest.op = 1; }, "operation"},
           {[](Digest& digest) { digest.root = 1; }, "root"},
           {[](Digest& digest) { digest.depth = 1; }, "depth"},
           {[](Digest& digest) { digest.counts = 1; }, "counts by rank"},
           {[](Digest& digest) { digest.postscale = 1; }, "postscale"},
           {[](Digest& digest) { digest.subchunk_elements = 1; }, "sub-chunks"},
           {[](Digest& digest) { digest.type = digest.root = 1; },
            "type, root"},
       }) {
    Digest digest = Call(6, 10);
    change(digest);
    ExpectMismatch(
        check, digest,
        "call number 6 differs between ranks in " + std::string(name) + ":");
  }
}

TEST(CallCheckTest, APeerThatIsSixtyFourCallsBehindIsAMismatch) {
  const CallCheck check = BegunUpTo(64);
  ExpectWhen(check, Call(1, 10), When::kPast);
  // Its digest is no longer known, so it is not said to differ.
  ExpectMismatch(check, Call(0, 10),
                 "rank 3 called call(count 10) as collective call number 0, "
                 "and rank 0 is at number 64 already");
}

TEST(CallCheckTest, TheRunningCallIsTheLastThatWasBegun) {
  EXPECT_EQ(BegunUpTo(6).running().sequence, 6U);
}

// Word by word: a difference in any field of a digest is another word.
TEST(CallCheckTest, CallsThatDifferHaveDifferentWords) {
  const Digest one = Call(7, 10);
  const auto word = [](const Digest& digest) {
    CallCheck check(0, &DescribeForTest);
    check.Begin(digest);
    return check.word();
  };
  EXPECT_EQ(word(one), word(Call(7, 10)));
  for (const auto change : std::initializer_list<void (*)(Digest&)>{
           [](Digest& digest) { ++digest.sequence; },
           [](Digest& digest) { ++digest.count; },
           [](Digest& digest) { ++digest.counts; },
           [](Digest& digest) { ++digest.collective; },
           [](Digest& digest) { ++digest.algorithm; },
           [](Digest& digest) { ++digest.type; },
           [](Digest& digest) { ++digest.op; },
           [](Digest& digest) { ++digest.root; },
           [](Digest& digest) { ++digest.depth; },
           [](Digest& digest) { ++digest.postscale; },
           [](Digest& digest) { ++digest.subchunk_elements; }}) {
    Digest other = one;
    change(other);
    EXPECT_NE(word(other), word(one));
  }
}

}  // namespace
}  // namespace ringpipe
