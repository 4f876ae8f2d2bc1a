// Bruck's algorithms: in step k each rank sends to the one 2^k away, whatever
// the number of ranks.
#include <algorithm>
#include <vector>

#include "engine/algorithms/families.h"

namespace ringpipe {
namespace {

// In step k the first min(2^k, p - 2^k) chunks that a rank has, from its own
// on, go to the rank 2^k before it. Each goes to its final place at once, where
// the original rotates them at the end.
Schedule AllGather(const Member& self) {
  Schedule schedule = {
      self.size, 0, {Transfer::LocalCopy(Input(self.rank), Output(self.rank))}};
  for (int distance = 1; distance < self.size; distance *= 2) {
    const int chunks = std::min(distance, self.size - distance);
    const int to = Modulo(self.rank - distance, self.size);
    const int from = Modulo(self.rank + distance, self.size);
    schedule.transfers.push_back(Transfer::Send(
        distance == 1 ? Input(self.rank) : Output(self.rank, chunks), to));
    schedule.transfers.push_back(
        Transfer::ReceiveCopy(Output(from, chunks), from));
  }
  return schedule;
}

// A chunk that has to travel i ranks travels 2^k of them in step k, for each
// bit k of i. What travels in a step is listed in a bank of scratch and is one
// message; what arrives lies in the next bank. Of what has travelled before,
// that costs nothing: both are the same part of a slot.
Schedule AllToAll(const Member& self) {
  const int size = self.size;
  Schedule schedule = {
      size, 0, {Transfer::LocalCopy(Input(self.rank), Output(self.rank))}};
  schedule.equal_chunks = true;
  std::vector<Place> travelling;  // by how many ranks it travels
  for (int ranks = 0; ranks < size; ++ranks) {
    travelling.push_back(Input(Modulo(self.rank + ranks, size)));
  }
  for (int bit = 1; bit < size; bit *= 2) {
    const int sent = schedule.scratch;
    const int arrived = sent + size;
    schedule.scratch += 2 * size;
    int count = 0;
    for (int ranks = bit; ranks < size; ++ranks) {
      if ((ranks & bit) != 0) {
        schedule.transfers.push_back(
            Transfer::LocalCopy(travelling[ranks], Scratch(sent + count)));
        travelling[ranks] = Scratch(arrived + count);
        ++count;
      }
    }
    schedule.transfers.push_back(
        Transfer::Send(Scratch(sent, count), Modulo(self.rank + bit, size)));
    schedule.transfers.push_back(Transfer::ReceiveCopy(
        Scratch(arrived, count), Modulo(self.rank - bit, size)));
  }
  for (int ranks = 1; ranks < size; ++ranks) {
    schedule.transfers.push_back(Transfer::LocalCopy(
        travelling[ranks], Output(Modulo(self.rank - ranks, size))));
  }
  return schedule;
}

// In step k each rank tells the one 2^k after it what it has heard. Some is
// heard twice, so it is no reduction.
Schedule Dissemination(const Member& self) {
  Schedule schedule = {1, 1, {}};
  Place heard = Input(0);
  for (int distance = 1; distance < self.size; distance *= 2) {
    schedule.transfers.push_back(
        Transfer::Send(heard, Modulo(self.rank + distance, self.size)));
    schedule.transfers.push_back(Transfer::ReceiveReduce(
        heard, 2 * distance < self.size ? Scratch(0) : Output(0),
        Modulo(self.rank - distance, self.size)));
    heard = Scratch(0);
  }
  return schedule;
}

// Half of the chunks travel in a step, and each that is to travel on later
// holds the slot in which it came.
int SlotsOfTravellers(const Member& of, int depth) {
  return of.size == 1   ? 0
         : of.size == 2 ? depth + 1
                        : ValuesAndOne(of.size / 2 + 1, depth);
}

constexpr AlgorithmInfo kBruckAlgorithms[] = {
    {.collective = Collective::kAllGather,
     .name = "bruck",
     .also = "concatenation algorithm; dissemination all-gather",
     .source = kBruck,
     .how = "In step i each rank sends all chunks that it has, as far as "
            "they are missing there, to the rank 2^i before it.",
     .algorithm = AllGather,
     .cost = {"lg p (α+μ) + (p-1)/p nβ", "lg p"},
     .cost_off_powers = {"(⌊lg p⌋+h)α + ⌈lg p⌉μ + (p-1)/p nβ", "⌈lg p⌉"},
     .slots = CopiesOfDoublings,
     .slots_of_split = HalfAndOne},
    {.collective = Collective::kAllToAll,
     .name = "bruck",
     .also = "index algorithm",
     .source = kBruck,
     .how = "A chunk that has to travel i ranks travels 2^j of them in "
            "step j, for each bit j of i. All chunks that travel in a "
            "step are one message.",
     .algorithm = AllToAll,
     .cost = {"lg p (α + μ + n/2 β)", "lg p"},
     .cost_off_powers = {"(⌊lg p⌋+h)α + ⌈lg p⌉μ + t/p nβ", "⌈lg p⌉"},
     .slots = SlotsOfTravellers,
     .slots_of_split = CopiesForAll},
    {.collective = Collective::kBarrier,
     .name = "dissemination",
     .also = "Bruck's barrier",
     .source = "Hensgen, Finkel and Manber, \"Two algorithms for barrier "
               "synchronization\", Int. J. Parallel Program. 17, 1988",
     .how = "In step i each rank tells the rank 2^i after it what it has "
            "heard.",
     .algorithm = ForSeveral<Dissemination>,
     .cost = {"⌈lg p⌉(α+μ)", "⌈lg p⌉"},
     .slots = OneMoreThanDepth},
};

}  // namespace

std::span<const AlgorithmInfo> BruckAlgorithms() { return kBruckAlgorithms; }

}  // namespace ringpipe
