#include "bench/json_report.h"

#include <gtest/gtest.h>

#include "nlohmann/json.hpp"

namespace ringpipe {
namespace {

TEST(JsonReport, HoldsParametersPlacesSamplesAndSummary) {
  Options options;
  options.iterations = 2;
  BenchmarkResult result;
  MeasuredSize size;
  size.row.bytes = 1024;
  size.row.count = 256;
  size.row.ranks = 2;
  size.out_of_place.samples_us = {{1.5, 2}, {3, 1}};
  size.out_of_place.first_us = {7, 9};
  size.in_place = size.out_of_place;
  size.row.out_of_place.time_us = 1.75;
  size.row.out_of_place.first_us = 9;
  size.row.out_of_place.summary = Summarize({3, 2});
  size.row.out_of_place.wrong = 0;
  result.sizes.push_back(size);
  const auto json = nlohmann::json::parse(
      FormatJsonReport("1.2.3", options, {{"h\xff", 5, "soft0"}}, result,
                       "receive"),
      nullptr, /*allow_exceptions=*/false);
  ASSERT_FALSE(json.is_discarded());
  EXPECT_EQ(json["version"], "1.2.3");
  EXPECT_EQ(json["parameters"]["iterations"], 2);
  EXPECT_EQ(json["ranks"][0]["device"], "soft0");
  EXPECT_EQ(json["bound_by"], "receive");
  const auto& series = json["sizes"][0]["out_of_place"];
  EXPECT_EQ(series["samples_us"][1][0], 3);
  EXPECT_EQ(series["slowest_us"], (std::vector<double>{3, 2}));
  EXPECT_EQ(series["first_call_us"], 9);
  EXPECT_EQ(series["summary_us"]["median"], 2.5);
  EXPECT_EQ(series["wrong"], 0);
  EXPECT_TRUE(json["sizes"][0]["in_place"]["wrong"].is_null());
}

}  // namespace
}  // namespace ringpipe
