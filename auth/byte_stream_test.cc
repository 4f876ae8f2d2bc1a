#include "auth/byte_stream.h"

#include <gtest/gtest.h>

#include <string>

namespace ringpipe {
namespace {

TEST(ByteStreamTest, ReadsBackWhatWasWritten) {
  ByteWriter writer;
  writer.U8(200);
  writer.U32(0xdeadbeef);
  writer.U64(0x0123456789abcdef);
  writer.String("text");
  writer.Raw("raw");
  ByteReader reader(writer.bytes());
  EXPECT_EQ(reader.U8(), 200);
  EXPECT_EQ(reader.U32(), 0xdeadbeef);
  EXPECT_EQ(reader.U64(), 0x0123456789abcdefu);
  EXPECT_EQ(reader.String(4), "text");
  EXPECT_FALSE(reader.finished());
  EXPECT_EQ(reader.Raw(3), "raw");
  EXPECT_TRUE(reader.finished());
}

TEST(ByteStreamTest, IsLittleEndian) {
  ByteWriter writer;
  writer.U32(1);
  EXPECT_EQ(writer.bytes(), std::string("\1\0\0\0", 4));
}

TEST(ByteStreamTest, ReadingPastTheEndFailsForGood) {
  ByteReader reader("abc");
  EXPECT_EQ(reader.U32(), 0u);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.Raw(1), "");
  EXPECT_FALSE(reader.finished());
}

TEST(ByteStreamTest, StringLongerThanAllowedOrThanTheInputFails) {
  ByteWriter writer;
  writer.String("12345");
  ByteReader too_long(writer.bytes());
  EXPECT_EQ(too_long.String(4), "");
  EXPECT_FALSE(too_long.ok());
  ByteReader cut(std::string_view(writer.bytes()).substr(0, 8));
  EXPECT_EQ(cut.String(100), "");
  EXPECT_FALSE(cut.ok());
}

}  // namespace
}  // namespace ringpipe
