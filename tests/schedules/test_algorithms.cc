#include "tests/schedules/test_algorithms.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "engine/algorithms.h"

namespace ringpipe {
namespace {

int Modulo(int value, int size) { return ((value % size) + size) % size; }

}  // namespace

std::span<const TestAlgorithm> AllTestAlgorithms() {
  static const std::vector<TestAlgorithm> algorithms = {
      {.name = "RingAllReduce", .algorithm = RingAllReduce},
      {.name = "RecursiveDoublingAllReduce",
       .algorithm = RecursiveDoublingAllReduce},
      {.name = "RingReduceScatter",
       .algorithm = RingReduceScatter,
       .promise = Promise::kReduceScatter},
      {.name = "RingAllGather",
       .algorithm = RingAllGather,
       .promise = Promise::kAllGather},
      {.name = "RingBroadcast",
       .algorithm = RingBroadcast,
       .promise = Promise::kBroadcast,
       .rooted = true},
      {.name = "BruckAllGather",
       .algorithm = BruckAllGather,
       .promise = Promise::kAllGather},
      {.name = "PairwiseAllToAll",
       .algorithm = PairwiseAllToAll,
       .promise = Promise::kAllToAll,
       .in_place = false},
      {.name = "BruckAllToAll",
       .algorithm = BruckAllToAll,
       .promise = Promise::kAllToAll,
       .in_place = false},
      {.name = "UnsplitRingAllReduce",
       .algorithm = UnsplitRingAllReduce,
       .same_bits = false},
      {.name = "BinomialBroadcast",
       .algorithm = BinomialBroadcast,
       .promise = Promise::kBroadcast,
       .rooted = true},
  };
  return algorithms;
}

Schedule BruckAllGather(int rank, int size, int /*root*/) {
  Schedule schedule = {
      size, 0, {Transfer::LocalCopy(Input(rank), Output(rank))}};
  for (int distance = 1; distance < size; distance *= 2) {
    const int blocks = std::min(distance, size - distance);
    const int to = Modulo(rank - distance, size);
    const int from = Modulo(rank + distance, size);
    for (int block = 0; block < blocks; ++block) {
      const Place sent =
          block == 0 ? Input(rank) : Output(Modulo(rank + block, size));
      const Place received = Output(Modulo(from + block, size));
      schedule.transfers.push_back(Transfer::Send(sent, to));
      schedule.transfers.push_back(Transfer::ReceiveCopy(received, from));
    }
  }
  return schedule;
}

Schedule PairwiseAllToAll(int rank, int size, int /*root*/) {
  Schedule schedule = {
      size, 0, {Transfer::LocalCopy(Input(rank), Output(rank))}};
  for (int step = 1; step < size; ++step) {
    const int to = Modulo(rank + step, size);
    const int from = Modulo(rank - step, size);
    schedule.transfers.push_back(Transfer::Send(Input(to), to));
    schedule.transfers.push_back(Transfer::ReceiveCopy(Output(from), from));
  }
  return schedule;
}

Schedule BruckAllToAll(int rank, int size, int /*root*/) {
  // Scratch(i) holds the block that travels i ranks, on its way.
  Schedule schedule = {
      size, size, {Transfer::LocalCopy(Input(rank), Output(rank))}};
  for (int bit = 1; bit < size; bit *= 2) {
    const int to = Modulo(rank + bit, size);
    const int from = Modulo(rank - bit, size);
    for (int block = 1; block < size; ++block) {
      if ((block & bit) == 0) {
        continue;
      }
      const bool first = (block & (bit - 1)) == 0;
      const bool last = block < 2 * bit;
      schedule.transfers.push_back(Transfer::Send(
          first ? Input(Modulo(rank + block, size)) : Scratch(block), to));
      schedule.transfers.push_back(Transfer::ReceiveCopy(
          last ? Output(Modulo(rank - block, size)) : Scratch(block), from));
    }
  }
  return schedule;
}

Schedule UnsplitRingAllReduce(int rank, int size, int /*root*/) {
  if (size == 1) {
    return {1, 0, {Transfer::LocalCopy(Input(0), Output(0))}};
  }
  const int right = Modulo(rank + 1, size);
  const int left = Modulo(rank - 1, size);
  Schedule schedule = {1, 1, {}};
  for (int step = 0; step < size - 1; ++step) {
    schedule.transfers.push_back(
        Transfer::Send(step == 0 ? Input(0) : Scratch(0), right));
    schedule.transfers.push_back(
        step < size - 2
            ? Transfer::ReceiveReduce(Input(0), Scratch(0), left)
            : Transfer::ReceiveReduceLast(Input(0), Output(0), left));
  }
  return schedule;
}

Schedule BinomialBroadcast(int rank, int size, int root) {
  const int position = Modulo(rank - root, size);  // in the tree; 0: its root
  Schedule schedule;
  // Below position p are p + 2^k for each 2^k smaller than p's lowest bit.
  int below = static_cast<int>(std::bit_ceil(static_cast<unsigned>(size)));
  if (position == 0) {
    schedule.transfers.push_back(Transfer::LocalCopy(Input(0), Output(0)));
  } else {
    below = position & -position;
    schedule.transfers.push_back(
        Transfer::ReceiveCopy(Output(0), Modulo(rank - below, size)));
  }
  for (int distance = below / 2; distance > 0; distance /= 2) {
    if (position + distance < size) {
      schedule.transfers.push_back(Transfer::Send(
          position == 0 ? Input(0) : Output(0), Modulo(rank + distance, size)));
    }
  }
  return schedule;
}

}  // namespace ringpipe
