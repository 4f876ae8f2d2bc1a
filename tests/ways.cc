#include "tests/ways.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <ostream>

namespace ringpipe::testing {
namespace {

using enum Way;
using enum Collective;

// Sanitizers slow a test down, so that there it goes fewer ways.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// --- The list ---

// A test program, and the ways that its tests go.
struct TestWays {
  std::string_view test;
  std::initializer_list<Way> ways;
  // Also these, but not with a sanitizer.
  std::initializer_list<Way> unsanitized = {};
};

constexpr TestWays kTests[] = {
    {"accelerator_memory_test", {kRails, kTestNetwork, kHostMemory}},
    {"allocation_failure_test", {kRails, kHostMemory}},
    {"arithmetic_test", {kRails, kHostMemory}},
    {"binding_memory_test", {kRails, kHostMemory}},
    {"closed_descriptors_test", {kRails, kHostMemory}},
    // With a sanitizer the test network is seen beside host memory alone.
    {"c_interface_test", {kRails, kHostMemory}},
    {"c_out_of_memory_test", {kRails, kHostMemory}},
    {"collectives_test",
     {kRails, kAdversarialRails, kHostMemory, kHostMemoryAndTestNetwork},
     {kTestNetwork, kRailsAndTestNetwork}},
    {"counts_of_pairs_test",
     {kRails, kAdversarialRails, kHostMemory},
     {kTestNetwork, kHostMemoryAndTestNetwork}},
    {"destruction_test",
     {kRails, kAdversarialRails, kTestNetwork, kRailsAndTestNetwork,
      kHostMemory, kHostMemoryAndTestNetwork}},
    {"ended_test", {kRails, kHostMemory}},
    {"exit_test", {kRails, kAdversarialRails, kHostMemory}},
    // AddressSanitizer has seen enough of one device.
    {"failure_test", {kRails, kHostMemory}, {kAdversarialRails}},
    {"goodbye_test", {kRails, kAdversarialRails, kHostMemory}},
    {"hostile_rank_test", {kHostMemory}},
    {"interface_test", {kRails, kTestNetwork, kHostMemory}},
    {"job_key_test", {kRails}},
    {"large_count_test", {kRails, kHostMemory}},
    {"leave_test", {kRails, kHostMemory}},
    {"lost_ranks_test", {kRails, kHostMemory}},
    {"misuse_test",
     {kRails, kAdversarialRails, kTestNetwork, kRailsAndTestNetwork,
      kHostMemory, kHostMemoryAndTestNetwork}},
    {"neighbours_test", {kRails, kHostMemory}},
    {"random_calls_test",
     {kRails, kAdversarialRails, kHostMemory, kHostMemoryAndTestNetwork},
     {kTestNetwork, kRailsAndTestNetwork}},
    {"random_end_test", {kRails, kHostMemory}},
    {"scaling_test",
     {kRails, kHostMemory},
     {kAdversarialRails, kTestNetwork, kHostMemoryAndTestNetwork}},
    {"send_receive_test",
     {kRails, kAdversarialRails, kTestNetwork, kRailsAndTestNetwork,
      kHostMemory, kHostMemoryAndTestNetwork}},
    {"short_call_test", {kRails, kHostMemory}},
    // As for failure_test.
    {"stopped_rank_test", {kRails, kHostMemory}, {kAdversarialRails}},
    {"system_call_failure_test", {kRails, kHostMemory}},
    {"threads_test", {kRails, kHostMemory}},
    {"trace_test", {kRails, kRailsAndTestNetwork, kHostMemory}},
    {"wake_test", {kRails, kHostMemory}},
    {"while_waiting_test", {kRails, kHostMemory}},
};

// Cases of collectives_test: each of the collectives by each of the algorithms,
// each of these ways, between each of these numbers of ranks; of the ways,
// those that collectives_test goes in this build.
struct CollectiveCases {
  std::initializer_list<Collective> collectives;
  std::initializer_list<const char*> algorithms;
  std::initializer_list<Way> ways;
  std::initializer_list<int> sizes;
  bool smallest = false;
};

constexpr CollectiveCases kCollectiveCases[] = {
    // What the engine chooses.
    {{kAllReduce, kReduceScatter, kAllGather, kBroadcast, kBarrier, kReduce,
      kGather, kScatter, kAllToAll},
     {""},
     {kRails, kAdversarialRails, kTestNetwork, kRailsAndTestNetwork,
      kHostMemory, kHostMemoryAndTestNetwork},
     {1, 2, 3, 5, 8, 16}},
    {{kAllReduce, kReduceScatter, kAllGather, kBroadcast, kBarrier, kReduce,
      kGather, kScatter, kAllToAll},
     {""},
     {kRails, kTestNetwork, kRailsAndTestNetwork, kHostMemory,
      kHostMemoryAndTestNetwork},
     {2, 8},
     /*smallest=*/true},
    {{kAllReduce, kReduceScatter, kAllGather, kBroadcast, kBarrier, kReduce,
      kGather, kScatter, kAllToAll},
     {""},
     {kAdversarialRails, kTestNetwork, kRailsAndTestNetwork, kHostMemory,
      kHostMemoryAndTestNetwork},
     {3, 5},
     /*smallest=*/true},
    // Every algorithm: collectives_test compares this with the registry. Six is
    // no power of two, and has divisors.
    {{kAllReduce},
     {"all_pairs", "double_binary_tree", "halving_doubling", "one_shot",
      "parameter_server", "rabenseifner", "recursive_doubling",
      "reduce_broadcast", "ring", "torus", "two_level", "unsplit_ring"},
     {kRails, kHostMemory},
     {6}},
    {{kReduceScatter},
     {"all_pairs", "one_shot", "pairwise", "recursive_halving",
      "reduce_scatter", "ring"},
     {kRails, kHostMemory},
     {6}},
    // There is none for other sizes than powers of two.
    {{kReduceScatter}, {"recursive_doubling"}, {kRails, kHostMemory}, {4}},
    {{kAllGather},
     {"all_pairs", "bruck", "recursive_doubling", "ring"},
     {kRails, kHostMemory},
     {6}},
    {{kBroadcast},
     {"all_pairs", "binomial_tree", "chain", "one_to_all",
      "scatter_all_gather"},
     {kRails, kHostMemory},
     {6}},
    {{kBarrier},
     {"all_to_all", "all_to_one", "dissemination", "recursive_doubling"},
     {kRails, kHostMemory},
     {6}},
    {{kReduce}, {"binomial_tree", "rabenseifner"}, {kRails, kHostMemory}, {6}},
    {{kGather, kScatter},
     {"binomial_tree", "linear"},
     {kRails, kHostMemory},
     {6}},
    {{kAllToAll},
     {"all_at_once", "bruck", "pairwise"},
     {kRails, kHostMemory},
     {6}},
};

// --- Reading it ---

constexpr std::array<std::string_view, 6> kNames = {
    "rails",        "adversarial_rails",
    "test_network", "rails_and_test_network",
    "host_memory",  "host_memory_and_test_network"};

[[noreturn]] void End(std::string_view what, std::string_view name) {
  std::fprintf(stderr, "tests/ways.cc has no %.*s \"%.*s\"\n",
               static_cast<int>(what.size()), what.data(),
               static_cast<int>(name.size()), name.data());
  std::abort();
}

template <typename T>
bool Has(const T& all, const typename T::value_type& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

}  // namespace

std::string_view Name(Way way) { return kNames[static_cast<std::size_t>(way)]; }

Way WayNamed(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) {
    End("way", name);
  }
  return static_cast<Way>(found - kNames.begin());
}

std::vector<Way> WaysOf(std::string_view test) {
  for (const TestWays& row : kTests) {
    if (row.test == test) {
      std::vector<Way> ways(row.ways);
      if (!kSanitized) {
        ways.insert(ways.end(), row.unsanitized.begin(), row.unsanitized.end());
      }
      return ways;
    }
  }
  End("test", test);
}

std::string NameOfWay(const ::testing::TestParamInfo<Way>& info) {
  return std::string(Name(info.param));
}

std::vector<CollectiveCase> CasesOf(Collective collective) {
  const std::vector<Way> ways = WaysOf("collectives_test");
  std::vector<CollectiveCase> cases;
  for (const CollectiveCases& row : kCollectiveCases) {
    if (!Has(row.collectives, collective)) {
      continue;
    }
    for (const char* const algorithm : row.algorithms) {
      for (const Way way : row.ways) {
        for (const int size : row.sizes) {
          if (Has(ways, way)) {
            cases.push_back({collective, algorithm, way, size, row.smallest});
          }
        }
      }
    }
  }
  return cases;
}

std::string NameOfCase(const ::testing::TestParamInfo<CollectiveCase>& info) {
  const CollectiveCase& own = info.param;
  std::string name(Name(own.way));
  name += "_" + std::to_string(own.size) + "ranks";
  name += own.smallest ? "_smallest" : "";
  return own.algorithm.empty() ? name : name + "_" + std::string(own.algorithm);
}

void PrintTo(const CollectiveCase& test_case, std::ostream* out) {
  *out << NameOfCase({test_case, 0});
}

}  // namespace ringpipe::testing
