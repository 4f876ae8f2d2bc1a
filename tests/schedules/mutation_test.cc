// The checker finds every single fault in every schedule, or the fault is none.
//
// A mutant is equivalent where every message, in the order of its connection,
// and every output is the same expression of the inputs as without the mutation
// (contributions to a sum in any order), and it runs with the same
// slots, in every order tried, in place and not, at every depth tried. So
// transfers that were swapped do not depend on each other, or a place was named
// differently that holds the same.
#include "tests/schedules/mutation.h"

#include <array>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/test_name.h"
#include "gtest/gtest.h"
#include "pipeline/checker.h"
#include "pipeline/plan.h"

namespace ringpipe {
namespace {

// The time it takes grows with the fifth power of the size, or so.
int LargestSize() {
  const char* size = std::getenv("LARGEST_SIZE");  // //tests:long
  return size == nullptr ? 5 : std::atoi(size);
}

enum class Verdict { kFound, kEquivalent, kMissed };

// One way to run the schedules, and what they do there unharmed.
struct Setting {
  CheckOptions options;
  std::vector<Plan> plans;
  std::uint64_t data_flow = 0;
};

class Mutants {
 public:
  Mutants(const AlgorithmInfo& algorithm, int size, int root,
          std::span<const int> hosts)
      : schedules_(SchedulesOf(algorithm.algorithm, size, root, hosts)) {
    CheckOptions options;
    options.collective = algorithm.collective;
    options.root = root;
    options.same_bits = algorithm.same_bits;
    options.subchunks = 2;  // the first is the quickest, and finds most
    Add(options);
    options.subchunks = 0;
    for (const int depth : {1, 2}) {
      for (const bool in_place : {false, true}) {
        for (const auto order :
             {CheckOptions::Order::kEager, CheckOptions::Order::kLazy,
              CheckOptions::Order::kRandom}) {
          options.depth = depth;
          options.plan.in_place = in_place;
          options.order = order;
          if (!in_place || algorithm.in_place) {
            Add(options);
          }
        }
      }
    }
  }

  // Compares a mutation of one rank's schedule with the original.
  Verdict Try(int rank, const Schedule& mutated) {
    bool same = true;
    for (Setting& setting : settings_) {
      Result<Plan> plan = Compile(mutated, rank, size(), setting.options.plan);
      if (!plan.ok()) {
        return Verdict::kFound;
      }
      std::swap(setting.plans[rank], *plan);
      RunResult result;
      const Status status = CheckPlans(setting.plans, setting.options, &result);
      std::swap(setting.plans[rank], *plan);
      if (!status.ok()) {
        return Verdict::kFound;
      }
      same = same && result.data_flow == setting.data_flow;
    }
    // A barrier promises no more than that it was kept.
    return same || settings_[0].options.collective == Collective::kBarrier
               ? Verdict::kEquivalent
               : Verdict::kMissed;
  }

  int size() const { return static_cast<int>(schedules_.size()); }
  const std::vector<Schedule>& schedules() const { return schedules_; }

 private:
  void Add(CheckOptions options) {
    Setting setting;
    const Result<int> slots = SmallestSlots(schedules_, options);
    ASSERT_TRUE(slots.ok()) << slots.status().ToString();
    options.slots = slots.value();
    setting.options = options;
    for (int rank = 0; rank < size(); ++rank) {
      Result<Plan> plan = Compile(schedules_[rank], rank, size(), options.plan);
      ASSERT_TRUE(plan.ok());
      setting.plans.push_back(std::move(plan).value());
    }
    RunResult result;
    ASSERT_TRUE(CheckPlans(setting.plans, options, &result).ok());
    setting.data_flow = result.data_flow;
    settings_.push_back(std::move(setting));
  }

  const std::vector<Schedule> schedules_;
  std::vector<Setting> settings_;
};

// A message of which one end alone has another range, or has it as two.
bool IsAlwaysWrong(const Mutation& mutation) {
  return mutation.of_message && (mutation.kind == Mutation::Kind::kShifted ||
                                 mutation.kind == Mutation::Kind::kLength ||
                                 mutation.kind == Mutation::Kind::kSplit ||
                                 mutation.kind == Mutation::Kind::kDoubled);
}

class MutationTest : public testing::TestWithParam<AlgorithmInfo> {
 protected:
  using Counts = std::array<std::array<int, 3>, Mutation::kKinds>;

  // Adds to `counts`, by kind and verdict.
  static void TryAll(int size, int root, std::span<const int> hosts,
                     Counts& counts) {
    Mutants mutants(GetParam(), size, root, hosts);
    for (int rank = 0; rank < size; ++rank) {
      for (const Mutation& mutation :
           Mutations(mutants.schedules()[rank], rank, size)) {
        const Verdict verdict = mutants.Try(rank, mutation.schedule);
        ++counts[static_cast<int>(mutation.kind)][static_cast<int>(verdict)];
        EXPECT_NE(verdict, Verdict::kMissed)
            << GetParam().name << ", size " << size << ", root " << root << ": "
            << mutation.what;
        EXPECT_FALSE(verdict == Verdict::kEquivalent && IsAlwaysWrong(mutation))
            << GetParam().name << ", size " << size << ", root " << root << ": "
            << mutation.what;
      }
    }
  }

  static void Print(const Counts& counts) {
    std::cout << std::left << std::setw(32) << TestName(GetParam());
    for (int kind = 0; kind < Mutation::kKinds; ++kind) {
      const auto& [found, equivalent, missed] = counts[kind];
      std::cout << MutationName(static_cast<Mutation::Kind>(kind)) << " "
                << found << " found + " << equivalent << " equivalent; ";
    }
    std::cout << "\n";
  }
};

TEST_P(MutationTest, EverySingleMutationIsFoundOrEquivalent) {
  const AlgorithmInfo& algorithm = GetParam();
  Counts counts = {};
  for (int size = 1; size <= LargestSize(); ++size) {
    if (!Exists(algorithm, {0, size})) {
      continue;
    }
    for (int root = 0;
         root < (InfoOf(algorithm.collective).is_rooted() ? size : 1); ++root) {
      TryAll(size, root, {}, counts);
    }
  }
  if (algorithm.collective == Collective::kBarrier) {
    return;
  }
  // Every transfer is needed, with its peer and its finish.
  for (const auto kind : {Mutation::Kind::kDropped, Mutation::Kind::kPeer,
                          Mutation::Kind::kFinish}) {
    EXPECT_EQ(counts[static_cast<int>(kind)][1], 0) << MutationName(kind);
  }
  Print(counts);
}

// Of the algorithms that do something else where ranks share hosts.
TEST_P(MutationTest, EverySingleMutationIsFoundWhereRanksShareHosts) {
  Counts counts = {};
  for (const std::vector<int>& hosts :
       {std::vector{0, 0, 1, 1}, std::vector{0, 1, 0, 1}}) {
    const int size = static_cast<int>(hosts.size());
    const Member member = {0, size, 0, hosts};
    if (Exists(GetParam(), member) &&
        GetParam().algorithm(member).transfers !=
            GetParam().algorithm({0, size}).transfers) {
      TryAll(size, 0, hosts, counts);
      Print(counts);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, MutationTest,
                         testing::ValuesIn(Algorithms().begin(),
                                           Algorithms().end()),
                         [](const auto& test) { return TestName(test.param); });

}  // namespace
}  // namespace ringpipe
