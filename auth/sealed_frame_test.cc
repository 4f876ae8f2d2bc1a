#include "auth/sealed_frame.h"

#include <gtest/gtest.h>

#include <string>

namespace ringpipe {
namespace {

const Mac kKey = {1, 2, 3};

// What FrameDecoder would return at the other end.
std::string SealedFrame(FrameSealer* sealer, const std::string& payload) {
  const Result<Seal> seal = sealer->SealPayload(payload);
  return payload + std::string(AsBytes(seal.value().mac));
}

TEST(SealedFrameTest, OpensInOrder) {
  FrameSealer sealer(kKey);
  FrameOpener opener(kKey);
  for (const std::string payload : {"one", "", "two", "two"}) {
    EXPECT_EQ(opener.Open(SealedFrame(&sealer, payload)).value(), payload);
  }
}

TEST(SealedFrameTest, HeaderCountsThePayloadAndTheMac) {
  FrameSealer sealer(kKey);
  const Seal seal = sealer.SealPayload("12345").value();
  FrameDecoder decoder(5 + sizeof(Mac));
  decoder.Append(std::string_view(seal.header.data(), seal.header.size()));
  decoder.Append("12345");
  decoder.Append(AsBytes(seal.mac));
  EXPECT_TRUE(decoder.Next().value().has_value());
}

TEST(SealedFrameTest, EveryChangedByteIsFound) {
  FrameSealer sealer(kKey);
  const std::string frame = SealedFrame(&sealer, "payload");
  for (size_t i = 0; i < frame.size(); ++i) {
    std::string changed = frame;
    changed[i] ^= 0x40;
    EXPECT_EQ(FrameOpener(kKey).Open(changed).status().code(),
              StatusCode::kPermissionDenied);
  }
  EXPECT_FALSE(FrameOpener(kKey).Open(frame.substr(1)).ok());
  EXPECT_FALSE(FrameOpener(kKey).Open("short").ok());
  EXPECT_FALSE(FrameOpener(Mac{}).Open(frame).ok());
}

TEST(SealedFrameTest, ReplayReorderAndOmissionAreFound) {
  FrameSealer sealer(kKey);
  const std::string first = SealedFrame(&sealer, "x");
  const std::string second = SealedFrame(&sealer, "x");
  FrameOpener replayed(kKey);
  EXPECT_TRUE(replayed.Open(first).ok());
  EXPECT_FALSE(replayed.Open(first).ok());
  FrameOpener reordered(kKey);
  EXPECT_FALSE(reordered.Open(second).ok());
}

}  // namespace
}  // namespace ringpipe
