// What a row of the registry says of messages and time is what the checker
// counts and the simulator takes.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/test_name.h"
#include "gtest/gtest.h"
#include "pipeline/checker.h"
#include "pipeline/simulator.h"
#include "tests/schedules/closed_form.h"

namespace ringpipe {
namespace {

#ifdef NDEBUG
constexpr int kLargestSize = 64;
#else
constexpr int kLargestSize = 20;  // with sanitizers
#endif

constexpr int kEnoughSlots = 1 << 13;

bool IsPowerOfTwo(int size) { return (size & (size - 1)) == 0; }

// The row's formulas among these ranks.
Cost CostAmong(const AlgorithmInfo& info, const Member& of) {
  return IsPowerOfTwo(of.size) || info.cost_off_powers.time.empty()
             ? info.cost
             : info.cost_off_powers;
}

// One of α, μ, β and γ is 1, or all have some value.
struct Prices {
  double latency = 0;
  double message = 0;
  double wire = 0;
  double reduction = 0;
};

// Among ranks that lie on hosts where the algorithm is for that.
class CostsTest : public testing::TestWithParam<AlgorithmInfo> {
 protected:
  bool Is(Collective collective, std::string_view name) const {
    return GetParam().collective == collective && GetParam().name == name;
  }
  bool IsTwoLevel() const { return Is(Collective::kAllReduce, "two_level"); }
  bool IsDoubleTree() const {
    return Is(Collective::kAllReduce, "double_binary_tree");
  }

  // Nobody, pairs, or half of all on a host, and the like.
  std::vector<std::vector<int>> LayoutsOf(int size) const {
    if (!IsTwoLevel()) {
      return {{}};
    }
    std::vector<std::vector<int>> layouts;
    for (int each = 2; each <= size; ++each) {
      if (size % each == 0) {
        std::vector<int>& hosts = layouts.emplace_back();
        for (int rank = 0; rank < size; ++rank) {
          hosts.push_back(rank / each);
        }
      }
    }
    return layouts;
  }

  static double ValueOf(std::string_view formula,
                        const ClosedFormValues& values) {
    const Result<double> value = Evaluate(formula, values);
    EXPECT_TRUE(value.ok()) << value.status().ToString();
    return value.ok() ? *value : -1;
  }

  // The row's formula, and what its remark says of two and three ranks.
  double Time(const Member& of, const Prices& prices, double bytes = 1,
              int subchunks = 1) const {
    ClosedFormValues values = ClosedFormValuesFor(of);
    values["n"] = bytes;
    values["k"] = subchunks;
    values["α"] = prices.latency;
    values["μ"] = prices.message;
    values["β"] = prices.wire;
    values["γ"] = prices.reduction;
    double time = ValueOf(CostAmong(GetParam(), of).time, values);
    if (of.size == 2 && Is(Collective::kBroadcast, "all_pairs")) {
      time -= prices.latency;
    } else if (of.size == 3 && IsDoubleTree()) {
      time += prices.latency;
    }
    return time;
  }
  double Sends(const Member& of) const {
    const double sends =
        ValueOf(CostAmong(GetParam(), of).sends, ClosedFormValuesFor(of));
    return IsDoubleTree() ? std::min<double>(sends, of.size) : sends;
  }

  void ExpectCounted(const Member& of) {
    CheckOptions options;
    options.collective = GetParam().collective;
    options.root = of.root;
    options.same_bits = GetParam().same_bits;
    options.subchunks = 1;
    options.slots = SlotsFor(GetParam(), of, options.depth);
    RunResult result;
    const Status status =
        Check(SchedulesOf(GetParam().algorithm, of.size, of.root, of.hosts),
              options, &result);
    ASSERT_TRUE(status.ok()) << status.ToString();
    const MessageCounts counts = CountMessages(result.messages, of.size);
    EXPECT_EQ(counts.longest_chain, Time(of, {.latency = 1}, 0))
        << of.size << " ranks, root " << of.root << ", on "
        << ClosedFormValuesFor(of)["r"] << " hosts or rows";
    EXPECT_EQ(counts.sent_by_busiest, Sends(of))
        << of.size << " ranks, root " << of.root << ", on "
        << ClosedFormValuesFor(of)["r"] << " hosts or rows";
  }

  double SimulatedTime(const Member& of, const Prices& prices,
                       std::uint64_t bytes, int subchunks = 1,
                       int slots = kEnoughSlots, int depth = 0) {
    const std::vector<Schedule> schedules =
        SchedulesOf(GetParam().algorithm, of.size, of.root, of.hosts);
    NetworkModel network;
    network.latency_s = prices.latency;
    network.message_s = prices.message;
    network.wire_s_per_byte = prices.wire;
    network.reduce_s_per_byte = prices.reduction;
    SimulationOptions options;
    options.message_bytes = bytes;
    options.subchunk_bytes =
        std::max<std::uint64_t>(1, bytes / schedules[0].chunks / subchunks);
    options.depth = depth == 0 ? subchunks : depth;
    options.slots = slots;
    const Result<SimulationResult> result =
        Simulate(schedules, network, options);
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    return result.ok() ? result->seconds : -1;
  }

  // A barrier has no message; else all chunks are equally long.
  std::uint64_t BytesFor(const Member& of, int subchunks = 1) const {
    int power = 1;
    while (2 * power <= of.size) {
      power *= 2;
    }
    return GetParam().collective == Collective::kBarrier
               ? 0
               : std::uint64_t{1000} * of.size * power * subchunks;
  }
};

TEST_P(CostsTest, TheCheckerCountsTheMessagesThatTheRowStates) {
  for (int size = 2; size <= kLargestSize; ++size) {
    for (const std::vector<int>& hosts : LayoutsOf(size)) {
      for (int root = 0; root < size && (root == 0 || size <= 8); ++root) {
        const Member of = {0, size, root, hosts};
        if ((root == 0 || InfoOf(GetParam().collective).is_rooted()) &&
            Exists(GetParam(), of)) {
          ExpectCounted(of);
        }
        if (HasFailure()) {
          return;  // one size's messages are enough
        }
      }
    }
  }
}

// Binary blocks state only α where they are unlike, and bounds; two trees are
// of use for long messages.
TEST_P(CostsTest, TheSimulatorTakesWhatTheRowStates) {
  for (const int size : {2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 16, 17, 31, 32}) {
    for (const std::vector<int>& hosts : LayoutsOf(size)) {
      const Member of = {0, size, 0, hosts};
      if (!Exists(GetParam(), of)) {
        continue;
      }
      const std::uint64_t bytes = BytesFor(of);
      const bool blocks =
          Is(Collective::kAllReduce, "halving_doubling") && !IsPowerOfTwo(size);
      for (const Prices& prices : {Prices{.latency = 1}, Prices{.message = 1},
                                   Prices{.wire = 1}, Prices{.reduction = 1}}) {
        const double expected = Time(of, prices, bytes);
        const double seconds = SimulatedTime(of, prices, bytes);
        if (prices.latency == 0 && IsDoubleTree()) {
          continue;
        }
        if (prices.latency == 0 && blocks) {
          EXPECT_LE(seconds, prices.wire > 0        ? 4.2 * bytes
                             : prices.reduction > 0 ? 1.5 * bytes
                                                    : 2.0 * size)
              << size;
          continue;
        }
        EXPECT_NEAR(seconds, expected, 0.01 * expected)
            << size << " ranks, by the price of "
            << (prices.latency > 0   ? "latency"
                : prices.message > 0 ? "a message"
                : prices.wire > 0    ? "a byte"
                                     : "a reduction");
      }
    }
  }
}

// The terms add up, or some of what they stand for happens at the same time.
TEST_P(CostsTest, TermsAddUpWhereNothingOverlaps) {
  // In these a reduction, or a message, goes on while others arrive.
  const bool overlaps = Is(Collective::kReduceScatter, "pairwise") ||
                        Is(Collective::kBroadcast, "all_pairs") ||
                        Is(Collective::kAllReduce, "parameter_server");
  for (const int size : {2, 3, 4, 6, 7, 8, 12, 16, 32}) {
    for (const std::vector<int>& hosts : LayoutsOf(size)) {
      const Member of = {0, size, 0, hosts};
      if (!Exists(GetParam(), of) || IsDoubleTree() ||
          (Is(Collective::kAllReduce, "halving_doubling") &&
           !IsPowerOfTwo(size))) {
        continue;
      }
      const std::uint64_t bytes = BytesFor(of);
      const double a_byte = 1.0 / std::max<double>(1, bytes);
      const Prices prices = {1, 0.5, 3 * a_byte, 2 * a_byte};
      const double sum = Time(of, prices, bytes);
      const double seconds = SimulatedTime(of, prices, bytes);
      EXPECT_LE(seconds, 1.01 * sum) << size;
      if (IsPowerOfTwo(size) && !overlaps) {
        EXPECT_GE(seconds, 0.99 * sum) << size;
      } else {
        EXPECT_GE(seconds, 0.7 * sum) << size;
      }
    }
  }
}

TEST_P(CostsTest, SubchunksFollowEachOther) {
  if (CostAmong(GetParam(), {0, 8}).time.find('k') == std::string_view::npos) {
    return;
  }
  for (const int size : {2, 3, 8, 17}) {
    for (const int subchunks : {2, 5, 40}) {
      const Member of = {0, size};
      const std::uint64_t bytes = BytesFor(of, subchunks);
      const double a_byte = 1.0 / static_cast<double>(bytes);
      const Prices prices = {0.01, 0.001, a_byte, a_byte};
      const double expected = Time(of, prices, bytes, subchunks);
      EXPECT_NEAR(SimulatedTime(of, prices, bytes, subchunks), expected,
                  0.01 * expected)
          << size << " ranks, " << subchunks << " sub-chunks";
    }
  }
}

// The row's time is the least; its remark says what the simulator takes.
TEST_P(CostsTest, TwoTreesTakeWhatTheirRemarkSays) {
  if (!IsDoubleTree()) {
    return;
  }
  constexpr int kDepth = 4;
  constexpr int kSubchunks = 200;
  for (const auto& [size, wire] : {std::pair(8, 3.3), std::pair(16, 3.8)}) {
    const Member of = {0, size};
    const std::uint64_t bytes = BytesFor(of, kSubchunks);
    const double seconds =
        SimulatedTime(of, {.wire = 1}, bytes, kSubchunks, kEnoughSlots, kDepth);
    EXPECT_NEAR(seconds, wire * bytes, 0.02 * wire * bytes) << size;
  }
}

INSTANTIATE_TEST_SUITE_P(All, CostsTest,
                         testing::ValuesIn(Algorithms().begin(),
                                           Algorithms().end()),
                         [](const auto& test) { return TestName(test.param); });

// "double_binary_tree": its remark. What goes through the busiest rank bounds
// the time from below.
class DoubleTreeCostsTest : public CostsTest {};
TEST_P(DoubleTreeCostsTest, ALongMessageTakesWhatTheRemarkSays) {
  for (const int size : {4, 8, 16, 17, 32}) {
    const Member of = {0, size};
    constexpr int kSubchunks = 500;
    constexpr int kDepth = 8;
    const std::uint64_t bytes = BytesFor(of, kSubchunks);
    const double a_byte = 1.0 / static_cast<double>(bytes);
    const double wire = SimulatedTime(of, {.wire = a_byte}, bytes, kSubchunks,
                                      kEnoughSlots, kDepth);
    EXPECT_GE(wire, Time(of, {.wire = a_byte}, bytes)) << size;
    EXPECT_LE(wire, 5) << size;
    const double reduction = SimulatedTime(of, {.reduction = a_byte}, bytes,
                                           kSubchunks, kEnoughSlots, kDepth);
    EXPECT_GE(reduction, Time(of, {.reduction = a_byte}, bytes)) << size;
    EXPECT_LE(reduction, 2.5) << size;
  }
}
INSTANTIATE_TEST_SUITE_P(One, DoubleTreeCostsTest,
                         testing::Values(*FindAlgorithm(Collective::kAllReduce,
                                                        "double_binary_tree")));

// "pairwise": their remark.
class PairwiseCostsTest : public CostsTest {};
TEST_P(PairwiseCostsTest, WithTheFewestSlotsStepsWaitForEachOther) {
  for (const int size : {3, 4, 7, 16}) {
    const Member of = {0, size};
    const int steps =
        Is(Collective::kAllToAll, "pairwise") ? size - 1 : size - 2;
    EXPECT_NEAR(SimulatedTime(of, {.latency = 1}, BytesFor(of), 1,
                              GetParam().slots(of, 1)),
                steps, 1e-9)
        << size;
  }
}
INSTANTIATE_TEST_SUITE_P(
    Both, PairwiseCostsTest,
    testing::Values(*FindAlgorithm(Collective::kReduceScatter, "pairwise"),
                    *FindAlgorithm(Collective::kAllToAll, "pairwise")),
    [](const auto& test) { return TestName(test.param); });

}  // namespace
}  // namespace ringpipe
