#include "bench/json_report.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "nlohmann/json.hpp"

namespace ringpipe {
namespace {

nlohmann::json Parsed(const Options& options, const Report& report) {
  auto json = nlohmann::json::parse(FormatJsonReport(options, report), nullptr,
                                    /*allow_exceptions=*/false);
  EXPECT_FALSE(json.is_discarded());
  return json;
}

MeasuredSize OneSize() {
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
  return size;
}

TEST(JsonReport, HoldsParametersFactsSamplesAndSummary) {
  Options options;
  options.iterations = 2;
  options.touch = true;
  options.algorithm = "rabenseifner";
  Report report;
  report.facts.version = "1.2.3";
  report.facts.places = {{"h\xff", 5, "soft0"}};
  report.facts.environment = {{"RINGPIPE_DEPTH", "8"}};
  report.facts.chunking = {"ring", 4096, 8, 9};
  report.result.sizes.push_back(OneSize());
  report.stages = {{"send", {0.25, 0.5}}};
  report.bound_by = "the wire";
  const auto json = Parsed(options, report);
  EXPECT_EQ(json["schema"]["version"], kJsonSchemaVersion);
  EXPECT_EQ(json["version"], "1.2.3");
  EXPECT_EQ(json["verdict"], "ok");
  EXPECT_EQ(json["device"], "soft0");
  EXPECT_EQ(json["environment"]["RINGPIPE_DEPTH"], "8");
  EXPECT_EQ(json["chunking"]["depth"], 8);
  EXPECT_EQ(json["parameters"]["iterations"], 2);
  EXPECT_EQ(json["parameters"]["touch"], true);
  EXPECT_EQ(json["parameters"]["algorithm"], "rabenseifner");
  EXPECT_EQ(json["parameters"]["huge_pages"], false);
  EXPECT_EQ(json["parameters"]["memory"], "host");
  EXPECT_EQ(json["parameters"]["align"], 16);
  EXPECT_EQ(json["parameters"]["rotate"], 1);
  EXPECT_EQ(json["parameters"]["tensors"], "");
  EXPECT_TRUE(json["parameters"]["step_factor"].is_null());
  EXPECT_EQ(json["ranks"][0]["device"], "soft0");
  EXPECT_EQ(json["stages"]["send"]["waited"], 0.5);
  EXPECT_EQ(json["bound_by"], "the wire");
  EXPECT_TRUE(json["unfinished"].is_null());
  const auto& series = json["sizes"][0]["out_of_place"];
  EXPECT_EQ(series["samples_us"][1][0], 3);
  EXPECT_EQ(series["slowest_us"], (std::vector<double>{3, 2}));
  EXPECT_EQ(series["first_call_us"], 9);
  EXPECT_EQ(series["summary_us"]["median"], 2.5);
  EXPECT_EQ(series["wrong"], 0);
  EXPECT_TRUE(json["sizes"][0]["in_place"]["wrong"].is_null());
}

TEST(JsonReport, TheVerdictIsTheWorstThatHolds) {
  Options options;
  Report report;
  EXPECT_EQ(Parsed(options, report)["verdict"], "ok");
  options.checks = 0;
  EXPECT_EQ(Parsed(options, report)["verdict"], "unchecked");
  report.result.wrong = 1;
  EXPECT_EQ(Parsed(options, report)["verdict"], "wrong");
  EXPECT_TRUE(Parsed(options, report)["interrupted_by"].is_null());
  report.interrupted_by = SIGTERM;
  EXPECT_EQ(Parsed(options, report)["verdict"], "interrupted");
  EXPECT_EQ(Parsed(options, report)["interrupted_by"], "SIGTERM");
}

TEST(JsonReport, AnInterruptedReportHasTheSizeThatIsUnfinished) {
  Report report;
  report.interrupted_by = SIGINT;
  const MeasuredSize size = OneSize();
  report.result.unfinished = UnfinishedSize{size.row, {}, {4, 5}};
  const auto early = Parsed({}, report);
  EXPECT_EQ(early["unfinished"]["rank_0_samples_us"],
            (std::vector<double>{4, 5}));
  EXPECT_TRUE(early["unfinished"]["out_of_place"].is_null());
  EXPECT_TRUE(early["bound_by"].is_null());
  report.result.unfinished->out_of_place = size.out_of_place;
  const auto late = Parsed({}, report);
  EXPECT_EQ(late["unfinished"]["out_of_place"]["slowest_us"],
            (std::vector<double>{3, 2}));
}

}  // namespace
}  // namespace ringpipe
