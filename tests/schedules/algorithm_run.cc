#include "tests/schedules/algorithm_run.h"

#include <algorithm>
#include <deque>
#include <map>
#include <string>

#include "cuda/accelerator.h"
#include "engine/test_name.h"
#include "gtest/gtest.h"
#include "pipeline/host_accelerator.h"
#include "pipeline/short_run.h"

namespace ringpipe {
namespace {

float InputOf(int rank, std::uint64_t element) {
  return static_cast<float>(rank + 1 + element % 13);
}

std::vector<int> HostsOf(int size, int ranks_per_host) {
  std::vector<int> hosts;
  for (int rank = 0; rank < size && ranks_per_host > 0; ++rank) {
    hosts.push_back(rank / ranks_per_host);
  }
  return hosts;
}

}  // namespace

AlgorithmRun::AlgorithmRun(const AlgorithmInfo& info, int size,
                           std::uint64_t elements, std::size_t slot_bytes,
                           int ranks_per_host)
    : info_(info),
      size_(size),
      elements_(elements),
      slot_elements_(slot_bytes / sizeof(float)),
      hosts_(HostsOf(size, ranks_per_host)),
      shape_(ShapeOf(info, MemberOf(0))),
      walk_(WalkOf(info.collective)) {}

Status AlgorithmRun::On(TestJob& job, int rank, std::uint64_t sequence,
                        bool in_place, Plan& plan,
                        std::chrono::minutes timeout) const {
  const Chunking chunking = ChunkingOf();
  Schedule schedule = info_.algorithm(MemberOf(rank));
  if (HasToSplit(chunking, walk_, shape_, slot_elements_)) {
    schedule = SplitRanges(schedule);
  }
  PlanOptions options;
  options.in_place = in_place;
  const auto peers = job.executor(rank).transports().Peers({}, {});
  options.peers = peers;
  options.direct_over_sent = info_.direct_over_sent;
  options.same_to_all = SameToAll(info_, MemberOf(0));
  if (chunking.subchunks() == 1 &&
      chunking.Count(0, shape_.widest, 0) * sizeof(float) <= 64) {
    options.message_bytes = 64;
  }
  RINGPIPE_ASSIGN_OR_RETURN(plan, Compile(schedule, rank, size_, options));
  std::vector<float> input(elements_);
  for (std::uint64_t i = 0; i < elements_; ++i) {
    input[i] = InputOf(rank, i);
  }
  std::vector<float> output =
      in_place ? input : std::vector<float>(elements_, -1);
  const auto host = CreateHostAccelerator();
  Operation operation =
      MakeOperation(plan, in_place ? output.data() : input.data(),
                    output.data(), elements_, kDepth, host.get(), timeout);
  operation.chunking = chunking;
  operation.digest.sequence = sequence;
  ShortRun::Measure(operation);
  RINGPIPE_RETURN_IF_ERROR(job.executor(rank).Run(operation));
  return Verify(rank, output);
}

int AlgorithmRun::slots() const {
  return std::max(1, SlotsFor(info_, MemberOf(0), kDepth));
}

// A slot holds the widest message.
Chunking AlgorithmRun::ChunkingOf() const {
  const std::uint64_t slot = slot_elements_;
  const std::uint64_t chunk = elements_ / shape_.chunks + 1;
  const std::uint64_t subchunk = walk_ == Walk::kSegments ? slot / shape_.widest
                                 : chunk * shape_.widest <= slot ? chunk
                                                                 : slot;
  return {elements_, shape_.chunks, subchunk, walk_};
}

// Of all ranks' inputs.
float AlgorithmRun::Sum(std::uint64_t element) const {
  return static_cast<float>(size_) *
         (InputOf(0, element) + static_cast<float>(size_ - 1) / 2);
}

Status AlgorithmRun::Verify(int rank, const std::vector<float>& output) const {
  const std::uint64_t each = std::max<std::uint64_t>(elements_ / size_, 1);
  for (std::uint64_t i = 0; i < elements_; ++i) {
    const int owner = static_cast<int>(i / each);
    bool promised = !InfoOf(info_.collective).is_rooted() || rank == root();
    float expected = 0;
    switch (info_.collective) {
      case Collective::kBarrier:
        return Status::Ok();
      case Collective::kAllReduce:
      case Collective::kReduce:
        expected = Sum(i);
        break;
      case Collective::kReduceScatter:
        promised = owner == rank;
        expected = Sum(i);
        break;
      case Collective::kAllGather:
      case Collective::kGather:
        expected = InputOf(owner, i);
        break;
      case Collective::kBroadcast:
        promised = true;
        expected = InputOf(root(), i);
        break;
      case Collective::kScatter:
        promised = owner == rank;
        expected = InputOf(root(), i);
        break;
      case Collective::kAllToAll:
        expected = InputOf(owner, rank * each + i % each);
        break;
      case Collective::kSendReceive:  // not in the registry
        break;
    }
    if (promised && output[i] != expected) {
      return {StatusCode::kInternal,
              "rank " + std::to_string(rank) + ": element " +
                  std::to_string(i) + " is " + std::to_string(output[i]) +
                  " instead of " + std::to_string(expected)};
    }
  }
  return Status::Ok();
}

std::uint64_t ElementsFor(const AlgorithmInfo& info, int size,
                          std::uint64_t count) {
  return WalkOf(info.collective) == Walk::kChunks
             ? (count + size - 1) / size * size
             : count;
}

namespace {

void ExpectRight(const AlgorithmInfo& info, std::uint64_t count,
                 const RunSettings& settings, TestJob& job,
                 std::deque<std::vector<Plan>>& plans) {
  const std::uint64_t elements = ElementsFor(info, settings.size, count);
  const AlgorithmRun run(info, settings.size, elements, settings.slot_bytes,
                         settings.ranks_per_host);
  for (const bool in_place : {false, true}) {
    const bool left_out =
        settings.places != Places::kBoth && in_place != info.in_place;
    if (left_out || (in_place && !info.in_place)) {
      continue;
    }
    const bool is_mixed = settings.places == Places::kEverySecondInPlace;
    const std::uint64_t sequence = job.TakeSequence(1);
    std::vector<Plan>& own = plans.emplace_back(settings.size);
    const std::vector<Status> statuses = job.OnAll([&](int rank) {
      return run.On(job, rank, sequence,
                    in_place && (!is_mixed || rank % 2 != 0), own[rank],
                    settings.timeout);
    });
    for (int rank = 0; rank < settings.size; ++rank) {
      EXPECT_TRUE(statuses[rank].ok())
          << TestName(info) << ", rank " << rank << " of " << settings.size
          << " ranks, " << elements << " elements, "
          << (!in_place  ? "out of place"
              : is_mixed ? "odd ranks in place"
                         : "in place")
          << ": " << statuses[rank].ToString();
    }
  }
}

}  // namespace

void ExpectAllRight(const RunSettings& settings) {
  std::map<int, std::vector<const AlgorithmInfo*>> by_slots;
  const std::vector<int> hosts =
      HostsOf(settings.size, settings.ranks_per_host);
  for (const AlgorithmInfo& info : Algorithms()) {
    if (Exists(info, {0, settings.size, 0, hosts})) {
      const AlgorithmRun run(info, settings.size, 0, settings.slot_bytes,
                             settings.ranks_per_host);
      by_slots[run.slots()].push_back(&info);
    }
  }
  for (const auto& [slots, algorithms] : by_slots) {
    std::deque<std::vector<Plan>> plans;  // outlive the job
    TestJob job({.size = settings.size,
                 .slots = slots,
                 .seed = settings.seed,
                 .way = settings.way,
                 .subchunk_bytes = settings.slot_bytes});
    for (const AlgorithmInfo* const info : algorithms) {
      for (const std::uint64_t count : settings.counts) {
        ExpectRight(*info, count, settings, job, plans);
        if (::testing::Test::HasFailure()) {
          ADD_FAILURE() << "seed " << settings.seed << ", way "
                        << static_cast<int>(settings.way);
          return;  // the job has ended
        }
      }
    }
  }
}

}  // namespace ringpipe
