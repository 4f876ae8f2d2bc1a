#include "engine/algorithms.h"

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

namespace ringpipe {
namespace {

// What a rank's slots take at most where RINGPIPE_DEPTH can be lowered for it.
constexpr std::uint64_t kMostSlotBytes = 32 << 20;

int Modulo(int value, int size) { return ((value % size) + size) % size; }

// The smallest numbers of slots. In each, the worst case is that of user memory
// that is not registered, so that a first send holds a slot with its copy.

// For schedules in which each rank keeps one value a sub-chunk and exchanges it
// step by step: depth + 1. Let (round, step, sub-chunk) be the earliest receive
// that is not posted anywhere. Its rank holds at most `depth` values, those of
// the last step that it has taken for each sub-chunk of the round, because the
// slots of older values went back when they were sent and reduced, which waits
// only for receives posted earlier still. So with one slot more it can be
// posted, and its message is on the way for the same reason. With only `depth`,
// every rank fills them with the values of its first send, and nobody can
// receive.
int OneMoreThanDepth(int size, int depth) { return size == 1 ? 0 : depth + 1; }

// For a chain or tree: depth. A rank between issues the receives of a round's
// sub-chunks before the first send of one, so it needs a slot for each; then it
// waits only for ranks farther from the root, and those wait for nobody. Where
// there is no rank between, each send and receive gives its slot back by
// itself.
int Depth(int size, int depth) { return size == 1 ? 0 : size == 2 ? 1 : depth; }

// Where every rank sends a part to each other before it receives: its copies
// of these, and one more. The earliest receive that is not posted anywhere
// finds at most (size - 1) * depth slots taken: copies that wait to be read
// and, for each peer that has read its copy, the value that came back instead.
int CopiesForAll(int size, int depth) {
  return size == 1 ? 0 : (size - 1) * depth + 1;
}

// In which only the root has copies for all, and its peers take them without
// waiting for anything else. But where a part arrives in memory that some
// connections do not reach, it is copied for each of these: CopiesForAll.
int ScatteredByRoot(int size, int depth) {
  return size == 1 ? 0 : size == 2 ? 1 : depth + 1;
}

// What one rank reads in a time that is short beside that of a few messages.
constexpr std::uint64_t kShortOfAll = 32 * 1024;

constexpr AlgorithmInfo kAlgorithms[] = {
    {.name = "ring",
     .algorithm = RingAllReduce,
     .slots = OneMoreThanDepth,
     .collective = Collective::kAllReduce,
     .direct_over_sent = true},
    {.name = "recursive_doubling",
     .algorithm = RecursiveDoublingAllReduce,
     .slots = OneMoreThanDepth,
     .collective = Collective::kAllReduce,
     .whole = true,
     .short_bytes = 4096},
    {.name = "ring",
     .algorithm = RingReduceScatter,
     .slots = OneMoreThanDepth,
     .collective = Collective::kReduceScatter},
    {.name = "ring",
     .algorithm = RingAllGather,
     .slots = OneMoreThanDepth,
     .collective = Collective::kAllGather},
    {.name = "ring",
     .algorithm = RingBroadcast,
     .slots = Depth,
     .collective = Collective::kBroadcast,
     .whole = true},
    {.name = "recursive_doubling",
     .algorithm = RecursiveDoublingAllReduce,
     .slots = OneMoreThanDepth,
     .collective = Collective::kBarrier,
     .whole = true},
    {.name = "all_pairs",
     .algorithm = AllPairsAllReduce,
     .slots = CopiesForAll,
     .collective = Collective::kAllReduce,
     .direct_over_sent = true,
     .one_host = true},
    {.name = "one_shot",
     .algorithm = OneShotAllReduce,
     .slots = CopiesForAll,
     .collective = Collective::kAllReduce,
     .whole = true,
     .one_host = true,
     .same_to_all = true,
     .short_bytes = 4096},
    {.name = "one_shot",
     .algorithm = OneShotAllReduce,
     .slots = CopiesForAll,
     .collective = Collective::kBarrier,
     .whole = true,
     .one_host = true,
     .same_to_all = true},
    {.name = "all_pairs",
     .algorithm = AllPairsReduceScatter,
     .slots = CopiesForAll,
     .collective = Collective::kReduceScatter,
     .direct_over_sent = true,
     .one_host = true},
    {.name = "all_pairs",
     .algorithm = AllPairsAllGather,
     .slots = CopiesForAll,
     .collective = Collective::kAllGather,
     .one_host = true},
    {.name = "all_pairs",
     .algorithm = AllPairsBroadcast,
     .slots = ScatteredByRoot,
     .slots_of_unlike = CopiesForAll,
     .collective = Collective::kBroadcast,
     .one_host = true},
};

}  // namespace

const char* CollectiveName(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "allreduce";
    case Collective::kReduceScatter:
      return "reduce-scatter";
    case Collective::kAllGather:
      return "all-gather";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kBarrier:
      return "barrier";
  }
  return "no collective";
}

std::span<const AlgorithmInfo> Algorithms() { return kAlgorithms; }

int SlotsNeeded(int size, int depth, bool one_host) {
  int needed = 1;
  for (const AlgorithmInfo& info : Algorithms()) {
    if (one_host || !info.one_host) {
      needed = std::max(needed, info.slots(size, depth));
      if (info.slots_of_unlike != nullptr) {
        needed = std::max(needed, info.slots_of_unlike(size, depth));
      }
    }
  }
  return needed;
}

int DepthFor(int depth, std::uint64_t subchunk_bytes, int size, bool one_host) {
  while (one_host && depth > 1 &&
         SlotsNeeded(size, depth, one_host) * subchunk_bytes > kMostSlotBytes) {
    --depth;
  }
  return depth;
}

// One for a single host before others, then one for short messages.
const AlgorithmInfo& AlgorithmFor(Collective collective, std::uint64_t bytes,
                                  int one_host) {
  const auto preference = [](const AlgorithmInfo& info) {
    return (info.one_host ? 2 : 0) + (info.short_bytes > 0 ? 1 : 0);
  };
  const AlgorithmInfo* chosen = nullptr;
  for (const AlgorithmInfo& info : kAlgorithms) {
    const bool fits = info.short_bytes == 0 ||
                      (bytes <= info.short_bytes &&
                       (!info.same_to_all || bytes * one_host <= kShortOfAll));
    if (info.collective == collective && fits &&
        (one_host > 0 || !info.one_host) &&
        (chosen == nullptr || preference(info) > preference(*chosen))) {
      chosen = &info;
    }
  }
  return *chosen;
}

Schedule RingAllReduce(int rank, int size, int /*root*/) {
  if (size == 1) {
    return {1, 0, {Transfer::LocalCopy(Input(0), Output(0))}};
  }
  const int right = Modulo(rank + 1, size);
  const int left = Modulo(rank - 1, size);
  Schedule schedule = {size, 1, {}};
  for (int step = 0; step < size - 1; ++step) {
    const Place sent = step == 0 ? Input(rank) : Scratch(0);
    const Place own = Input(Modulo(rank - step - 1, size));
    schedule.transfers.push_back(Transfer::Send(sent, right));
    schedule.transfers.push_back(
        step < size - 2
            ? Transfer::ReceiveReduce(own, Scratch(0), left)
            : Transfer::ReceiveReduceLast(own, Output(own.chunk), left));
  }
  for (int step = 0; step < size - 1; ++step) {
    const Place sent = Output(Modulo(rank + 1 - step, size));
    const Place received = Output(Modulo(rank - step, size));
    schedule.transfers.push_back(Transfer::Send(sent, right));
    schedule.transfers.push_back(Transfer::ReceiveCopy(received, left));
  }
  return schedule;
}

Schedule RingReduceScatter(int rank, int size, int /*root*/) {
  if (size == 1) {
    return {1, 0, {Transfer::LocalCopy(Input(0), Output(0))}};
  }
  const int right = Modulo(rank + 1, size);
  const int left = Modulo(rank - 1, size);
  Schedule schedule = {size, 1, {}};
  for (int step = 0; step < size - 1; ++step) {
    const Place sent = step == 0 ? Input(left) : Scratch(0);
    const Place own = Input(Modulo(rank - step - 2, size));
    schedule.transfers.push_back(Transfer::Send(sent, right));
    schedule.transfers.push_back(
        step < size - 2 ? Transfer::ReceiveReduce(own, Scratch(0), left)
                        : Transfer::ReceiveReduceLast(own, Output(rank), left));
  }
  return schedule;
}

Schedule RingAllGather(int rank, int size, int /*root*/) {
  const int right = Modulo(rank + 1, size);
  const int left = Modulo(rank - 1, size);
  Schedule schedule = {
      size, 0, {Transfer::LocalCopy(Input(rank), Output(rank))}};
  for (int step = 0; step < size - 1; ++step) {
    const Place sent =
        step == 0 ? Input(rank) : Output(Modulo(rank - step, size));
    const Place received = Output(Modulo(rank - step - 1, size));
    schedule.transfers.push_back(Transfer::Send(sent, right));
    schedule.transfers.push_back(Transfer::ReceiveCopy(received, left));
  }
  return schedule;
}

Schedule RingBroadcast(int rank, int size, int root) {
  const int right = Modulo(rank + 1, size);
  const int left = Modulo(rank - 1, size);
  Schedule schedule;
  schedule.transfers.push_back(rank == root
                                   ? Transfer::LocalCopy(Input(0), Output(0))
                                   : Transfer::ReceiveCopy(Output(0), left));
  if (right != root) {
    schedule.transfers.push_back(
        Transfer::Send(rank == root ? Input(0) : Output(0), right));
  }
  return schedule;
}

Schedule RecursiveDoublingAllReduce(int rank, int size, int /*root*/) {
  if (size == 1) {
    return {1, 0, {Transfer::LocalCopy(Input(0), Output(0))}};
  }
  const int core = static_cast<int>(std::bit_floor(unsigned(size)));
  if (rank >= core) {
    return {1,
            0,
            {Transfer::Send(Input(0), rank - core),
             Transfer::ReceiveCopy(Output(0), rank - core)}};
  }
  const bool folds = rank + core < size;
  Schedule schedule = {1, 1, {}};
  Place own = Input(0);
  if (folds) {
    schedule.transfers.push_back(
        Transfer::ReceiveReduce(own, Scratch(0), rank + core));
    own = Scratch(0);
  }
  for (int bit = 1; bit < core; bit *= 2) {
    const int partner = rank ^ bit;
    schedule.transfers.push_back(Transfer::Send(own, partner));
    schedule.transfers.push_back(
        2 * bit < core ? Transfer::ReceiveReduce(own, Scratch(0), partner)
                       : Transfer::ReceiveReduceLast(own, Output(0), partner));
    own = Scratch(0);
  }
  if (folds) {
    schedule.transfers.push_back(Transfer::Send(Output(0), rank + core));
  }
  return schedule;
}

// --- All pairs ---------------------------------------------------------------

namespace {

// The other ranks, each beginning with the one after it, so that not all turn
// to the same one.
std::vector<int> Others(int rank, int size) {
  std::vector<int> others;
  for (int step = 1; step < size; ++step) {
    others.push_back(Modulo(rank + step, size));
  }
  return others;
}

// Every rank gives each other its part of input and reduces its own of all.
void ScatterAndReduce(Schedule& schedule, int rank,
                      const std::vector<int>& others) {
  for (const int peer : others) {
    schedule.transfers.push_back(Transfer::Send(Input(peer), peer));
  }
  Place sum = Input(rank);
  for (const int peer : others) {
    schedule.transfers.push_back(
        peer == others.back()
            ? Transfer::ReceiveReduceLast(sum, Output(rank), peer)
            : Transfer::ReceiveReduce(sum, Scratch(0), peer));
    sum = Scratch(0);
  }
}

// Every rank gives all others its part, which lies in `own`.
void Gather(Schedule& schedule, Place own, const std::vector<int>& others) {
  for (const int peer : others) {
    schedule.transfers.push_back(Transfer::Send(own, peer));
  }
  for (const int peer : others) {
    schedule.transfers.push_back(Transfer::ReceiveCopy(Output(peer), peer));
  }
}

}  // namespace

Schedule AllPairsAllReduce(int rank, int size, int /*root*/) {
  if (size == 1) {
    return {1, 0, {Transfer::LocalCopy(Input(0), Output(0))}};
  }
  const std::vector<int> others = Others(rank, size);
  Schedule schedule = {size, 1, {}};
  ScatterAndReduce(schedule, rank, others);
  Gather(schedule, Output(rank), others);
  return schedule;
}

Schedule OneShotAllReduce(int rank, int size, int /*root*/) {
  if (size == 1) {
    return {1, 0, {Transfer::LocalCopy(Input(0), Output(0))}};
  }
  Schedule schedule = {1, 1, {}};
  for (const int peer : Others(rank, size)) {
    schedule.transfers.push_back(Transfer::Send(Input(0), peer));
  }
  // In the order of the ranks, so that all end with the same bits.
  Place sum = Input(0);
  if (rank != 0) {
    sum = Scratch(0);
    schedule.transfers.push_back(Transfer::ReceiveCopy(sum, 0));
  }
  for (int next = 1; next < size; ++next) {
    const bool last = next == size - 1;
    const Place target = last ? Output(0) : Scratch(0);
    Transfer transfer = next == rank
                            ? Transfer::LocalReduce(sum, Input(0), target)
                            : Transfer::ReceiveReduce(sum, target, next);
    transfer.finish = last;
    schedule.transfers.push_back(transfer);
    sum = target;
  }
  return schedule;
}

Schedule AllPairsReduceScatter(int rank, int size, int /*root*/) {
  if (size == 1) {
    return {1, 0, {Transfer::LocalCopy(Input(0), Output(0))}};
  }
  Schedule schedule = {size, 1, {}};
  ScatterAndReduce(schedule, rank, Others(rank, size));
  return schedule;
}

Schedule AllPairsAllGather(int rank, int size, int /*root*/) {
  Schedule schedule = {
      size, 0, {Transfer::LocalCopy(Input(rank), Output(rank))}};
  Gather(schedule, Input(rank), Others(rank, size));
  return schedule;
}

Schedule AllPairsBroadcast(int rank, int size, int root) {
  const std::vector<int> others = Others(rank, size);
  Schedule schedule = {size, 0, {}};
  if (rank == root) {
    for (const int peer : others) {
      schedule.transfers.push_back(Transfer::Send(Input(peer), peer));
    }
    for (int chunk = 0; chunk < size; ++chunk) {
      schedule.transfers.push_back(
          Transfer::LocalCopy(Input(chunk), Output(chunk)));
    }
  } else {
    schedule.transfers.push_back(Transfer::ReceiveCopy(Output(rank), root));
  }
  const Place own = rank == root ? Input(rank) : Output(rank);
  for (const int peer : others) {
    if (peer != root) {
      schedule.transfers.push_back(Transfer::Send(own, peer));
    }
  }
  for (const int peer : others) {
    if (rank != root) {
      schedule.transfers.push_back(Transfer::ReceiveCopy(Output(peer), peer));
    }
  }
  return schedule;
}

}  // namespace ringpipe
