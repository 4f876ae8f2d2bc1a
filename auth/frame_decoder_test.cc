#include "auth/frame_decoder.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace ringpipe {
namespace {

TEST(FrameDecoderTest, FramesComeOutWholeHoweverTheBytesArrive) {
  const std::vector<std::string> payloads = {"", "a", std::string(1000, 'x'),
                                             "", std::string("\0\1\2", 3)};
  std::string stream;
  for (const std::string& payload : payloads) {
    stream += EncodeFrame(payload);
  }
  for (const size_t piece : {1, 2, 3, 7, 1000, 5000}) {
    FrameDecoder decoder(1000);
    std::vector<std::string> taken;
    for (size_t at = 0; at < stream.size(); at += piece) {
      decoder.Append(std::string_view(stream).substr(at, piece));
      for (;;) {
        const Result<std::optional<std::string>> frame = decoder.Next();
        ASSERT_TRUE(frame.ok());
        if (!frame.value()) {
          break;
        }
        taken.push_back(*frame.value());
      }
    }
    EXPECT_EQ(taken, payloads) << piece;
    EXPECT_EQ(decoder.held_bytes(), 0u);
  }
}

TEST(FrameDecoderTest, FrameOverTheLimitIsRefusedByItsHeaderAlone) {
  FrameDecoder decoder(10);
  decoder.Append(EncodeFrame(std::string(11, 'x')).substr(0, 4));
  EXPECT_EQ(decoder.Next().status().code(), StatusCode::kInvalidArgument);
  decoder.Append(std::string(11, 'x'));
  EXPECT_EQ(decoder.Next().status().code(), StatusCode::kInvalidArgument);
}

TEST(FrameDecoderTest, LimitCanGrowForTheNextFrame) {
  FrameDecoder decoder(1);
  decoder.Append(EncodeFrame("1") + EncodeFrame("22"));
  EXPECT_EQ(*decoder.Next().value(), "1");
  decoder.set_most_payload_bytes(2);
  EXPECT_EQ(*decoder.Next().value(), "22");
}

// Whatever comes, the decoder ends, and never returns more than it got.
TEST(FrameDecoderTest, RandomBytesDoNoHarm) {
  std::mt19937 random(1);
  for (int run = 0; run < 2000; ++run) {
    FrameDecoder decoder(300);
    size_t given = 0;
    size_t taken = 0;
    for (int piece = 0; piece < 20; ++piece) {
      std::string bytes(random() % 40, '\0');
      for (char& byte : bytes) {
        byte = static_cast<char>(random() % 4 == 0 ? random() : 0);
      }
      given += bytes.size();
      decoder.Append(bytes);
      Result<std::optional<std::string>> frame = decoder.Next();
      while (frame.ok() && frame.value()) {
        taken += 4 + frame.value()->size();
        frame = decoder.Next();
      }
      ASSERT_EQ(taken + decoder.held_bytes(), given);
      if (!frame.ok()) {
        break;
      }
    }
  }
}

}  // namespace
}  // namespace ringpipe
