#include "engine/algorithms.h"

#include <bit>
#include <string>

namespace ringpipe {
namespace {

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

constexpr AlgorithmInfo kAlgorithms[] = {
    {"ring", RingAllReduce, OneMoreThanDepth, Collective::kAllReduce,
     /*direct_over_sent=*/true},
    {"recursive_doubling", RecursiveDoublingAllReduce, OneMoreThanDepth,
     Collective::kAllReduce, /*direct_over_sent=*/false,
     /*short_bytes=*/4096},
    {"ring", RingReduceScatter, OneMoreThanDepth, Collective::kReduceScatter},
    {"ring", RingAllGather, OneMoreThanDepth, Collective::kAllGather},
    {"ring", RingBroadcast, Depth, Collective::kBroadcast},
    {"recursive_doubling", RecursiveDoublingAllReduce, OneMoreThanDepth,
     Collective::kBarrier},
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

const AlgorithmInfo& AlgorithmFor(Collective collective, std::uint64_t bytes) {
  const AlgorithmInfo* chosen = nullptr;
  for (const AlgorithmInfo& info : kAlgorithms) {
    if (info.collective == collective &&
        (chosen == nullptr || bytes <= info.short_bytes)) {
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

}  // namespace ringpipe
