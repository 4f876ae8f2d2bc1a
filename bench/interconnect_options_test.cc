#include "bench/interconnect_options.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace ringpipe {
namespace {

Result<InterconnectOptions> Parse(std::vector<const char*> arguments,
                                  const std::string& directory = "") {
  arguments.insert(arguments.begin(), "interconnect");
  return ParseInterconnectOptions(static_cast<int>(arguments.size()),
                                  arguments.data(), directory);
}

std::string ErrorOf(const std::vector<const char*>& arguments) {
  const auto options = Parse(arguments);
  EXPECT_EQ(options.status().code(), StatusCode::kInvalidArgument);
  return options.status().message();
}

TEST(InterconnectOptionsTest, WithoutArgumentsItIsARankOfAJob) {
  const auto options = Parse({});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->ranks, 0);
  EXPECT_DOUBLE_EQ(options->analysis.tolerance, 0.1);
  EXPECT_DOUBLE_EQ(options->run.stress_seconds, 2);
}

TEST(InterconnectOptionsTest, FiguresHaveUnits) {
  const auto options =
      Parse({"--ranks", "8", "--expect", "90Gbit/s", "--duration", "10m",
             "--tolerance", "5%", "--message_bytes", "1M", "--isolated"});
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  EXPECT_EQ(options->ranks, 8);
  EXPECT_DOUBLE_EQ(*options->analysis.expect_bytes_per_s, 11.25e9);
  EXPECT_DOUBLE_EQ(options->run.stress_seconds, 600);
  EXPECT_DOUBLE_EQ(options->run.tolerance, 0.05);
  EXPECT_EQ(*options->run.message_bytes, 1U << 20);
  EXPECT_TRUE(options->run.isolate_all);
}

TEST(InterconnectOptionsTest, PathsAreOfWhereItWasCalled) {
  const auto options =
      Parse({"--json", "a.json", "--html", "/tmp/a.html"}, "/home/me");
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->json_path, "/home/me/a.json");
  EXPECT_EQ(options->html_path, "/tmp/a.html");
  EXPECT_TRUE(Parse({"--json", "-"}, "/home/me")->JsonToStandardOutput());
}

TEST(InterconnectOptionsTest, ReportTakesOneFileOrTwo) {
  const auto options =
      Parse({"report", "a.json", "b.json", "--html", "c.html"});
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  EXPECT_EQ(options->saved_paths,
            (std::vector<std::string>{"a.json", "b.json"}));
  EXPECT_EQ(options->html_path, "c.html");
  EXPECT_FALSE(Parse({"report"}).ok());
  EXPECT_FALSE(Parse({"report", "a", "b", "c"}).ok());
}

TEST(InterconnectOptionsTest, WhatIsWrongIsNamed) {
  EXPECT_EQ(ErrorOf({"--rnaks", "8"}),
            "there is no option --rnaks; did you mean --ranks?; see --help");
  // Also of the subcommand.
  EXPECT_EQ(ErrorOf({"report", "a", "--htlm", "b"}),
            "there is no option --htlm; did you mean --html?; see --help");
  EXPECT_EQ(ErrorOf({"8"}), "unexpected argument: 8; see --help");
  EXPECT_NE(ErrorOf({"--expect", "90"}).find("90Gbit/s"), std::string::npos);
  EXPECT_NE(ErrorOf({"--tolerance", "many"}).find("--tolerance"),
            std::string::npos);
  EXPECT_NE(ErrorOf({"--ranks", "0"}).find("--ranks"), std::string::npos);
  EXPECT_NE(ErrorOf({"--message_bytes", "1"}).find("4K"), std::string::npos);
  EXPECT_NE(ErrorOf({"--html", "-"}).find("name a file"), std::string::npos);
}

TEST(InterconnectOptionsTest, HelpSaysWhatItIsForAndHowItEnds) {
  const auto options = Parse({"--help"});
  ASSERT_TRUE(options.ok());
  for (const char* words :
       {"--ranks", "Exit status: 0 healthy", "report", "Ctrl-C", "srun"}) {
    EXPECT_NE(options->help.find(words), std::string::npos) << words;
  }
}

}  // namespace
}  // namespace ringpipe
