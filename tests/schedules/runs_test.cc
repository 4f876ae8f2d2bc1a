// Every algorithm moves bytes: between 1 and 16 ranks, by each way, at sizes
// that leave a rest, compared with a reference.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "base/counters.h"
#include "engine/test_name.h"
#include "gtest/gtest.h"
#include "pipeline/checker.h"
#include "pipeline/test_job.h"
#include "tests/schedules/algorithm_run.h"

namespace ringpipe {
namespace {

#ifdef NDEBUG
constexpr std::uint64_t kLargestCount = 1'000'003;
constexpr int kMostRanks = 16;
constexpr int kSeeds = 2;
#else  // with sanitizers, which look at each algorithm, and not at each size
constexpr std::uint64_t kLargestCount = 20'011;
constexpr int kMostRanks = 5;
constexpr int kSeeds = 1;
#endif

// Among so many ranks.
class RunsTest : public testing::TestWithParam<int> {
 protected:
  int size() const { return GetParam(); }
};

TEST_P(RunsTest, ShortMessages) {
  const auto ranks = static_cast<std::uint64_t>(size());
  // Over rails with the adversary too.
  for (const auto& [way, seed] :
       {std::pair(Way::kHostMemory, 0), {Way::kRails, 0}, {Way::kRails, 1}}) {
    ExpectAllRight({.size = size(),
                    .counts = {0, 1, ranks - 1, ranks, ranks + 1},
                    .seed = seed,
                    .way = way});
  }
}

TEST_P(RunsTest, SomeRanksInPlaceAndOthersNot) {
  if (size() != 2 && size() != 4 && size() != 7) {
    return;
  }
  for (const Way way : {Way::kHostMemory, Way::kRails, Way::kBoth}) {
    ExpectAllRight({.size = size(),
                    .counts = {1, size() * kSubchunkBytes + 3},
                    .way = way,
                    .places = Places::kEverySecondInPlace});
  }
}

TEST_P(RunsTest, LongMessages) {
  constexpr std::array kSizes = {2, 3, 4, 7, 8, 16};
  if (std::count(kSizes.begin(), kSizes.end(), size()) == 0) {
    return;
  }
  for (int seed = 0; seed < (size() <= 8 ? kSeeds : 1); ++seed) {
    for (const Way way : {Way::kRails, Way::kHostMemory, Way::kBoth,
                          Way::kHostAndTestNetwork}) {
      // Four sub-chunks of each chunk, which are two rounds, and a rest.
      ExpectAllRight({.size = size(),
                      .counts = {size() * kSubchunkBytes + 3},
                      .seed = seed,
                      .way = way});
    }
  }
}

// Algorithms that know of hosts do something else then.
TEST_P(RunsTest, RanksOnSeveralHosts) {
  constexpr std::array kSizes = {4, 5, 8};
  const int sizes = kSeeds == 1 ? 1 : 3;  // with sanitizers, of 4 alone
  if (std::count(kSizes.begin(), kSizes.begin() + sizes, size()) == 0) {
    return;
  }
  for (const int ranks_per_host : {2, 4}) {
    ExpectAllRight({.size = size(),
                    .counts = {1, size() * kSubchunkBytes + 3},
                    .seed = 1,
                    .way = Way::kBoth,
                    .ranks_per_host = ranks_per_host});
  }
}

// Other numbers of ranks, and the adversary, in runs_long_test.
TEST_P(RunsTest, AMillionElements) {
  if (size() == 2 || size() == 5 || size() == 8) {
    for (const Way way : {Way::kHostMemory, Way::kRails}) {
      // The fewer: a chunk fits into a slot, and a range of several does not.
      ExpectAllRight({.size = size(),
                      .counts = {kLargestCount, 20'011},
                      .seed = size() % 2,  // the adversary's
                      .way = way,
                      .slot_bytes = 32 * 1024});
    }
  }
}

// By rank, what its executor has handed to connections.
std::vector<std::uint64_t> MessagesSent(TestJob& job) {
  std::vector<std::uint64_t> sent;
  for (int rank = 0; rank < job.size(); ++rank) {
    for (const StageCounters& stage : job.executor(rank).stage_counters()) {
      if (stage.stage == "send") {
        sent.push_back(stage.operations);
      }
    }
  }
  return sent;
}

// The same by the checker.
std::vector<std::uint64_t> MessagesOf(const AlgorithmInfo& info, int size,
                                      int root) {
  CheckOptions options;
  options.collective = info.collective;
  options.same_bits = info.same_bits;
  options.root = root;
  options.subchunks = 1;
  options.slots = SlotsFor(info, {0, size}, options.depth);
  RunResult result;
  const Status status =
      Check(SchedulesOf(info.algorithm, size, root), options, &result);
  EXPECT_TRUE(status.ok()) << status.ToString();
  std::vector<std::uint64_t> sent(size);
  for (const SentMessage& message : result.messages) {
    ++sent[message.from];
  }
  return sent;
}

// The short ones are eager; all are one sub-chunk.
TEST_P(RunsTest, EachRankSendsAsManyMessagesAsTheCheckerCounts) {
  if (size() != 3 && size() != 4 && size() != 7) {
    return;
  }
  for (const Way way : {Way::kRails, Way::kHostMemory, Way::kTestNetwork}) {
    for (const AlgorithmInfo& info : Algorithms()) {
      if (!Exists(info, {0, size()})) {
        continue;
      }
      std::deque<std::vector<Plan>> plans;  // outlive the job
      TestJob job({.size = size(),
                   .slots = AlgorithmRun(info, size(), 0).slots(),
                   .way = way});
      for (const std::uint64_t count : {8, 240}) {
        const AlgorithmRun run(info, size(), ElementsFor(info, size(), count));
        std::vector<Plan>& own = plans.emplace_back(size());
        const std::vector<std::uint64_t> before = MessagesSent(job);
        const std::uint64_t sequence = job.TakeSequence(1);
        for (const Status& status : job.OnAll([&](int rank) {
               return run.On(job, rank, sequence, /*in_place=*/false, own[rank],
                             std::chrono::minutes(1));
             })) {
          ASSERT_TRUE(status.ok()) << TestName(info) << status.ToString();
        }
        std::vector<std::uint64_t> sent = MessagesSent(job);
        for (int rank = 0; rank < size(); ++rank) {
          sent[rank] -= before[rank];
        }
        EXPECT_EQ(sent, MessagesOf(info, size(), run.root()))
            << TestName(info) << ", " << count << " elements, way "
            << static_cast<int>(way);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, RunsTest, testing::Range(1, kMostRanks + 1));

}  // namespace
}  // namespace ringpipe
