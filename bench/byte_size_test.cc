#include "bench/byte_size.h"

#include <gtest/gtest.h>

namespace ringpipe {
namespace {

TEST(ByteSize, UnitsAreBinaryAndCaseDoesNotMatter) {
  EXPECT_EQ(*ParseByteSize("0"), 0u);
  EXPECT_EQ(*ParseByteSize("1000"), 1000u);
  EXPECT_EQ(*ParseByteSize("64K"), 64u << 10);
  EXPECT_EQ(*ParseByteSize("256m"), 256u << 20);
  EXPECT_EQ(*ParseByteSize("3G"), std::uint64_t{3} << 30);
  EXPECT_EQ(*ParseByteSize("1T"), std::uint64_t{1} << 40);
  EXPECT_EQ(*ParseByteSize("1.5K"), 1536u);
}

TEST(ByteSize, AnythingElseIsAnErrorThatSaysWhatIsAllowed) {
  for (const char* text : {"", "K", "12Q", "-1", "-0", "1KB", "1 K", "0.5",
                           "inf", "nan", "1e3x", "9999999T", " 1", "0x10"}) {
    const auto size = ParseByteSize(text);
    ASSERT_FALSE(size.ok()) << text;
    EXPECT_EQ(size.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(size.status().message().find("256M"), std::string::npos);
  }
}

TEST(ByteSize, FormatsWhatItParses) {
  for (const char* text : {"0", "1000", "1K", "256M", "3G", "2T"}) {
    EXPECT_EQ(FormatByteSize(*ParseByteSize(text)), text);
  }
  EXPECT_EQ(FormatByteSize(1536), "1.50K");
}

}  // namespace
}  // namespace ringpipe
