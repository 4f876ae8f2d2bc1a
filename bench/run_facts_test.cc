#include "bench/run_facts.h"

#include <gtest/gtest.h>

#include <regex>

namespace ringpipe {
namespace {

TEST(RunFacts, TheDateIsIso8601InUtc) {
  EXPECT_TRUE(std::regex_match(
      UtcDate(),
      std::regex("20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6]"
                 "[0-9]Z")))
      << UtcDate();
}

TEST(RunFacts, TheProcessorHasANameAndCores) {
  const Processor processor = FindProcessor();
  EXPECT_FALSE(processor.model.empty());
  EXPECT_GE(processor.usable_cores, 1);
  EXPECT_GE(processor.cores, processor.usable_cores);
}

TEST(RunFacts, OnlyVariablesOfRingpipeAndNcclAreReportedAndNoSecret) {
  const char* const environment[] = {"PATH=/bin",
                                     "RINGPIPE_SECRET=hidden",
                                     "NCCL_IB_HCA=mlx5",
                                     "RINGPIPE_DEPTH=8",
                                     "RINGPIPE_HOST_ID=",
                                     "XRINGPIPE_DEPTH=9",
                                     nullptr};
  EXPECT_EQ(ReportedVariables(environment),
            (std::map<std::string, std::string>{{"NCCL_IB_HCA", "mlx5"},
                                                {"RINGPIPE_DEPTH", "8"},
                                                {"RINGPIPE_HOST_ID", ""},
                                                {"RINGPIPE_SECRET", "(set)"}}));
}

}  // namespace
}  // namespace ringpipe
