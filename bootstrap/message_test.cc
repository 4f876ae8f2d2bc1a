#include "bootstrap/message.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace ringpipe {
namespace {

TEST(MessageTest, EveryMessageReadsBack) {
  const auto request = std::get<JoinRequest>(
      DecodeMessage(EncodeMessage(JoinRequest{3, 8, -1, {42, "x"}})).value());
  EXPECT_EQ(request.rank, 3u);
  EXPECT_EQ(request.size, 8u);
  EXPECT_EQ(request.left_ms, -1);
  EXPECT_EQ(request.identity.ToString(), "pid 42 on host x");
  const auto contribution = std::get<Contribution>(
      DecodeMessage(
          EncodeMessage(Contribution{9, Gathering::kBarrier, 17, "blob"}))
          .value());
  EXPECT_EQ(contribution.sequence, 9u);
  EXPECT_EQ(contribution.gathering, Gathering::kBarrier);
  EXPECT_EQ(contribution.left_ms, 17);
  EXPECT_EQ(contribution.blob, "blob");
  const auto gathered = std::get<GatheredBlobs>(
      DecodeMessage(EncodeMessage(GatheredBlobs{2, 5, {"a", "", "c"}}))
          .value());
  EXPECT_EQ(gathered.sequence, 2u);
  EXPECT_EQ(gathered.first_rank, 5u);
  EXPECT_EQ(gathered.blobs, (std::vector<std::string>{"a", "", "c"}));
  const auto departure = std::get<Departure>(
      DecodeMessage(EncodeMessage(Departure{4, 7})).value());
  EXPECT_EQ(departure.rank, 4u);
  EXPECT_EQ(departure.calls, 7u);
  const Identity identity = Identity::Decode(Identity{1, "h"}.Encode()).value();
  EXPECT_EQ(identity.host, "h");
}

TEST(MessageTest, AbortNeverReadsAsOk) {
  const std::string whole =
      EncodeMessage(AbortNotice{Status(StatusCode::kTimeout, "why")});
  for (const char byte : {'\0', '\1', 'x'}) {  // ok, and codes that are none
    std::string changed = whole;
    changed.replace(1, 4, 4, byte);
    const auto notice = std::get<AbortNotice>(DecodeMessage(changed).value());
    EXPECT_FALSE(notice.reason.ok());
    EXPECT_EQ(notice.reason.message(), "why");
  }
}

TEST(MessageTest, LargestBatchFitsAFrame) {
  GatheredBlobs batch;
  batch.blobs = {std::string(kBlobBatchBytes - 5, 'x'),
                 std::string(kMostBlobBytes, 'y')};
  EXPECT_LE(EncodeMessage(batch).size(), kMostMessageBytes);
  // As many empty blobs as the batch takes.
  batch.blobs.assign(kBlobBatchBytes / 4, "");
  EXPECT_LE(EncodeMessage(batch).size(), kMostMessageBytes);
}

TEST(MessageTest, TheLongestRepliesOfAllRanksFitTheirFrames) {
  const std::vector<std::string> all(65'536, std::string(kMostReplyBytes, 'x'));
  std::vector<std::string> read;
  for (const Replies& some : Replies::InMessages(all)) {
    const std::string encoded = EncodeMessage(some);
    ASSERT_LE(encoded.size(), kMostMessageBytes);
    const auto replies = std::get<Replies>(DecodeMessage(encoded).value());
    ASSERT_EQ(replies.first_rank, read.size());
    read.insert(read.end(), replies.texts.begin(), replies.texts.end());
  }
  EXPECT_EQ(read, all);
}

TEST(MessageTest, CutOrChangedBytesAreRefusedOrReadWithinTheirBounds) {
  std::mt19937 random(1);
  const std::string whole =
      EncodeMessage(GatheredBlobs{2, 5, {"alpha", "beta", "gamma"}});
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_FALSE(DecodeMessage(whole.substr(0, bytes)).ok());
  }
  EXPECT_FALSE(DecodeMessage(whole + "x").ok());
  for (int run = 0; run < 20000; ++run) {
    std::string changed = whole;
    changed[random() % changed.size()] = static_cast<char>(random());
    changed[0] = static_cast<char>(random() % 7);
    (void)DecodeMessage(changed).ok();
  }
}

}  // namespace
}  // namespace ringpipe
