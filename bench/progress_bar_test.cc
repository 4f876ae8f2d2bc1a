#include "bench/progress_bar.h"

#include <gtest/gtest.h>

namespace ringpipe {
namespace {

TEST(FormatProgress, HasBarPercentTimeLeftAndWhatGoesOn) {
  EXPECT_EQ(FormatProgress(79, 0.5, 12.2, "64M float32 sum"),
            "[####################                    ]  50 %  0:13 left  "
            "64M float32 sum");
}

TEST(FormatProgress, NeverTakesMoreColumnsThanThereAre) {
  for (int columns = -1; columns <= 120; ++columns) {
    for (const double part : {-1.0, 0.0, 0.37, 1.0, 7.0}) {
      const std::string text = FormatProgress(columns, part, 86400.0 * 365,
                                              "256M float32 sum out of place");
      EXPECT_LE(static_cast<int>(text.size()), std::max(columns, 0)) << text;
    }
  }
}

TEST(FormatProgress, ANarrowTerminalKeepsPercentAndTimeLeft) {
  EXPECT_EQ(FormatProgress(16, 0.37, 185, "64M float32 sum"),
            " 37 %  3:05 left");
  EXPECT_EQ(FormatProgress(24, 0.37, 185, "64M float32 sum"),
            " 37 %  3:05 left  64M fl");
  EXPECT_EQ(FormatProgress(44, 0.37, 185, "64M float32 sum"),
            "[##      ]  37 %  3:05 left  64M float32 sum");
  EXPECT_EQ(FormatProgress(6, 0.37, 185, ""), " 37 %");
}

TEST(FormatProgress, TimeLeftIsInMinutesOrHoursAndLeftOutWhileUnknown) {
  EXPECT_EQ(FormatProgress(20, 1, 0, ""), "100 %  0:00 left");
  EXPECT_EQ(FormatProgress(20, 0.1, 3.0 * 3600 + 5 * 60 + 9, ""),
            " 10 %  3:05:09 left");
  EXPECT_EQ(FormatProgress(13, 0, {}, ""), "  0 %");
}

}  // namespace
}  // namespace ringpipe
