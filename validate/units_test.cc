#include "validate/units.h"

#include "gtest/gtest.h"

namespace ringpipe::validate {
namespace {

TEST(UnitsTest, RatesAreOfBitsOrBytes) {
  EXPECT_DOUBLE_EQ(ParseRate("90Gbit/s").value(), 90e9 / 8);
  EXPECT_DOUBLE_EQ(ParseRate("11.5 GB/s").value(), 11.5e9);
  EXPECT_DOUBLE_EQ(ParseRate("100Mb/s").value(), 100e6 / 8);
  for (const char* wrong : {"", "90", "G", "90G", "-1GB/s", "0GB/s", "fast",
                            "90Gbit/s please", "infGB/s", "nanGB/s"}) {
    EXPECT_EQ(ParseRate(wrong).status().code(), StatusCode::kInvalidArgument)
        << wrong;
  }
}

TEST(UnitsTest, DurationsHaveAUnitOrAreSeconds) {
  EXPECT_DOUBLE_EQ(ParseDuration("10m").value(), 600);
  EXPECT_DOUBLE_EQ(ParseDuration("2h").value(), 7200);
  EXPECT_DOUBLE_EQ(ParseDuration("500ms").value(), 0.5);
  EXPECT_DOUBLE_EQ(ParseDuration("90").value(), 90);
  for (const char* wrong : {"", "m", "10 years", "-3s", "1e9h"}) {
    EXPECT_FALSE(ParseDuration(wrong).ok()) << wrong;
  }
}

TEST(UnitsTest, PartsAreInPercent) {
  EXPECT_DOUBLE_EQ(ParsePercent("10%").value(), 0.1);
  EXPECT_DOUBLE_EQ(ParsePercent("5").value(), 0.05);
  for (const char* wrong : {"", "%", "ten", "100%", "-5"}) {
    EXPECT_FALSE(ParsePercent(wrong).ok()) << wrong;
  }
}

}  // namespace
}  // namespace ringpipe::validate
