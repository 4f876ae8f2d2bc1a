#include "tests/gpu/gpu_cases.h"

#include <set>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace ringpipe::testing {
namespace {

const std::vector<MemoryKind> kAll(kMemoryKinds.begin(), kMemoryKinds.end());

// In words, beside what the code makes of them.
std::vector<std::string> ValuesOf(const GpuCase& one) {
  return {CollectiveName(one.collective),
          "of " + std::string(Name(one.type)),
          std::string(Name(one.op)),
          "from " + std::string(Name(one.input)),
          "to " + std::string(Name(one.output)),
          std::string(Name(one.way)),
          one.in_place ? "in place" : "out of place"};
}

using Pairs = std::set<std::pair<std::string, std::string>>;
Pairs PairsOf(const std::vector<GpuCase>& cases) {
  Pairs pairs;
  for (const GpuCase& one : cases) {
    const auto values = ValuesOf(one);
    for (std::size_t a = 0; a < values.size(); ++a) {
      for (std::size_t b = a + 1; b < values.size(); ++b) {
        pairs.emplace(values[a], values[b]);
      }
    }
  }
  return pairs;
}

TEST(GpuCasesTest, EveryPairThatIsAllowedIsInOneOfTheChosenCases) {
  const auto all = AllCases(kAll);
  for (unsigned seed = 0; seed < 5; ++seed) {
    const auto chosen = CasesOfAllPairs(kAll, seed);
    EXPECT_EQ(PairsOf(chosen), PairsOf(all)) << "seed " << seed;
    EXPECT_LT(chosen.size(), 150U);
    for (const GpuCase& one : chosen) {
      EXPECT_TRUE(IsAllowed(one)) << Words(one);
    }
  }
}

TEST(GpuCasesTest, WhatIsAllowedIsWhatRingpipeAdmits) {
  const Pairs pairs = PairsOf(AllCases(kAll));
  for (const char* const collective :
       {"allreduce", "reduce-scatter", "all-gather", "broadcast", "reduce",
        "gather", "scatter", "all-to-all", "send-receive"}) {
    for (const DataType type : kDataTypes) {
      EXPECT_TRUE(
          pairs.contains({collective, "of " + std::string(Name(type))}));
    }
    for (const MemoryKind kind : kMemoryKinds) {
      EXPECT_TRUE(
          pairs.contains({collective, "from " + std::string(Name(kind))}));
    }
    EXPECT_TRUE(pairs.contains({collective, "host_memory"}));
    EXPECT_TRUE(pairs.contains({collective, "rails"}));
  }
  EXPECT_TRUE(pairs.contains({"allreduce", "max"}));
  EXPECT_FALSE(pairs.contains({"broadcast", "max"}));
  EXPECT_TRUE(pairs.contains({"gather", "in place"}));
  EXPECT_FALSE(pairs.contains({"all-to-all", "in place"}));
  EXPECT_TRUE(pairs.contains({"from managed", "to pool"}));
  EXPECT_TRUE(pairs.contains({"from pinned", "to pageable"}));
  EXPECT_TRUE(pairs.contains({"from pageable", "to device"}));
  EXPECT_TRUE(pairs.contains({"from pool", "to pinned"}));
}

TEST(GpuCasesTest, ACaseIsSaidInWords) {
  EXPECT_EQ(Words({.collective = Collective::kReduce,
                   .type = DataType::kFloat16,
                   .op = ReduceOp::kMin,
                   .input = MemoryKind::kPool,
                   .output = MemoryKind::kPool,
                   .way = Way::kRails,
                   .in_place = true}),
            "reduce of float16, min, from pool to pool memory, by rails, in "
            "place");
}

}  // namespace
}  // namespace ringpipe::testing
