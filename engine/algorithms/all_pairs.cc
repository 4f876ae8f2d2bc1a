// Every rank with every other, without steps between.
#include <vector>

#include "engine/algorithms/families.h"
#include "engine/algorithms/group.h"

namespace ringpipe {
namespace {

// The other ranks, each beginning with the one after it, so that not all turn
// to the same one.
std::vector<int> Others(const Member& self) {
  std::vector<int> others;
  for (int step = 1; step < self.size; ++step) {
    others.push_back(Modulo(self.rank + step, self.size));
  }
  return others;
}

// Rank r reduces part r of all inputs, as it lies there, and puts the result
// into all outputs. The same bits on all ranks, since one reduces for all.
Schedule AllReduce(const Member& self) {
  const Group all = InRankOrder(self);
  Schedule schedule = {self.size, self.size, {}};
  all.ReduceDirectly({}, schedule);
  all.GatherDirectly(Output(self.rank), schedule);
  return schedule;
}

// Each gives all others the whole message and reduces all, in the order of the
// ranks, so that all end with the same bits.
Schedule OneShot(const Member& self) {
  Schedule schedule = {1, 1, {}};
  for (const int peer : Others(self)) {
    schedule.transfers.push_back(Transfer::Send(Input(0), peer));
  }
  Place sum = Input(0);
  if (self.rank != 0) {
    sum = Scratch(0);
    schedule.transfers.push_back(Transfer::ReceiveCopy(sum, 0));
  }
  for (int next = 1; next < self.size; ++next) {
    const bool last = next == self.size - 1;
    const Place target = last ? Output(0) : Scratch(0);
    schedule.transfers.push_back(
        next == self.rank ? Transfer::LocalReduce(sum, Input(0), target, last)
                          : Transfer::ReceiveReduce(sum, target, next, last));
    sum = target;
  }
  return schedule;
}

// The first half of AllReduce.
Schedule ReduceScatter(const Member& self) {
  Schedule schedule = {self.size, self.size, {}};
  InRankOrder(self).ReduceDirectly({}, schedule);
  return schedule;
}

// Each gives all others its whole input, of which they take their part: more
// bytes, and one message that is the same for all.
Schedule OneShotReduceScatter(const Member& self) {
  // A bank for what each peer sends, and one for the sum.
  Schedule schedule = {self.size, self.size * self.size, {}};
  for (const int peer : Others(self)) {
    schedule.transfers.push_back(Transfer::Send(Input(0, self.size), peer));
  }
  Place sum = Input(self.rank);
  for (int step = 1; step < self.size; ++step) {
    const int peer = Modulo(self.rank + step, self.size);
    const int bank = step * self.size;
    const bool is_last = step == self.size - 1;
    schedule.transfers.push_back(
        Transfer::ReceiveCopy(Scratch(bank, self.size), peer));
    const Place target = is_last ? Output(self.rank) : Scratch(self.rank);
    schedule.transfers.push_back(
        Transfer::LocalReduce(sum, Scratch(bank + self.rank), target, is_last));
    sum = target;
  }
  return schedule;
}

// As ReduceScatter, step by step: to the rank k after this one, from the one k
// before.
Schedule PairwiseReduceScatter(const Member& self) {
  Schedule schedule = {self.size, self.size, {}};
  Place sum = Input(self.rank);
  for (int step = 1; step < self.size; ++step) {
    const int to = Modulo(self.rank + step, self.size);
    const int from = Modulo(self.rank - step, self.size);
    schedule.transfers.push_back(Transfer::Send(Input(to), to));
    const bool is_last = step == self.size - 1;
    schedule.transfers.push_back(Transfer::ReceiveReduce(
        sum, is_last ? Output(self.rank) : Scratch(self.rank), from, is_last));
    sum = Scratch(self.rank);
  }
  return schedule;
}

// The second half.
Schedule AllGather(const Member& self) {
  Schedule schedule = {
      self.size, 0, {Transfer::LocalCopy(Input(self.rank), Output(self.rank))}};
  InRankOrder(self).GatherDirectly(Input(self.rank), schedule);
  return schedule;
}

// The root gives each a part, and each gives its own to all others.
Schedule Broadcast(const Member& self) {
  const std::vector<int> others = Others(self);
  Schedule schedule = {self.size, 0, {}};
  const bool is_root = self.rank == self.root;
  if (is_root) {
    for (const int peer : others) {
      schedule.transfers.push_back(Transfer::Send(Input(peer), peer));
    }
    for (int chunk = 0; chunk < self.size; ++chunk) {
      schedule.transfers.push_back(
          Transfer::LocalCopy(Input(chunk), Output(chunk)));
    }
  } else {
    schedule.transfers.push_back(
        Transfer::ReceiveCopy(Output(self.rank), self.root));
  }
  const Place own = is_root ? Input(self.rank) : Output(self.rank);
  for (const int peer : others) {
    if (peer != self.root) {
      schedule.transfers.push_back(Transfer::Send(own, peer));
    }
  }
  for (const int peer : others) {
    if (!is_root) {
      schedule.transfers.push_back(Transfer::ReceiveCopy(Output(peer), peer));
    }
  }
  return schedule;
}

// Where the interface ties chunks to ranks, they are equally long.
Schedule AllToAllFrom(const Member& self) {
  Schedule schedule = {
      self.size, 0, {Transfer::LocalCopy(Input(self.rank), Output(self.rank))}};
  schedule.equal_chunks = true;
  return schedule;
}

Schedule AllToAllAtOnce(const Member& self) {
  Schedule schedule = AllToAllFrom(self);
  for (const int peer : Others(self)) {
    schedule.transfers.push_back(Transfer::Send(Input(peer), peer));
  }
  for (const int peer : Others(self)) {
    schedule.transfers.push_back(Transfer::ReceiveCopy(Output(peer), peer));
  }
  return schedule;
}

// In place output[from] would arrive before input[from] is sent.
Schedule PairwiseAllToAll(const Member& self) {
  Schedule schedule = AllToAllFrom(self);
  for (int step = 1; step < self.size; ++step) {
    const int to = Modulo(self.rank + step, self.size);
    const int from = Modulo(self.rank - step, self.size);
    schedule.transfers.push_back(Transfer::Send(Input(to), to));
    schedule.transfers.push_back(Transfer::ReceiveCopy(Output(from), from));
  }
  return schedule;
}

constexpr AlgorithmInfo kAllPairs[] = {
    {.collective = Collective::kAllReduce,
     .name = "all_pairs",
     .also = "two-shot allreduce; direct reduce-scatter and all-gather",
     .source = "two phases: each rank reduces and hands out one part",
     .how = "The message is one chunk for each rank, which gets that "
            "chunk from all others, reduces it, and gives the result to "
            "all.",
     .algorithm = ForSeveral<AllReduce>,
     .cost = {"2α + 2(p-1)μ + 2(p-1)/p nβ + (p-1)/p nγ", "2(p-1)"},
     .slots = CopiesForAll,
     .direct_over_sent = true},
    {.collective = Collective::kAllReduce,
     .name = "one_shot",
     .also = "one-shot allreduce (of inference engines); all-to-all broadcast "
             "and local reduction",
     .source = "NCCL's \"allreduce, tree of depth one\"; tiny messages",
     .how = "Each rank gives all others its whole message, and reduces "
            "what it gets from them.",
     .algorithm = ForSeveral<OneShot>,
     .cost = {"α + (p-1)(μ+nβ+nγ)", "p-1"},
     .slots = CopiesForAll},
    {.collective = Collective::kReduceScatter,
     .name = "all_pairs",
     .also = "direct reduce-scatter",
     .source = "the first phase of allreduce by all pairs",
     .how = "Each rank gets its chunk from all others, and reduces it.",
     .algorithm = ForSeveral<ReduceScatter>,
     .cost = {"α + (p-1)μ + (p-1)/p nβ + (p-1)/p nγ", "p-1"},
     .slots = CopiesForAll,
     .direct_over_sent = true},
    {.collective = Collective::kReduceScatter,
     .name = "one_shot",
     .source = "as the allreduce of that name; tiny messages",
     .how = "Each rank gives all others its whole message, of which they "
            "reduce their chunk: more bytes, but one message that is the "
            "same for all.",
     .algorithm = ForSeveral<OneShotReduceScatter>,
     .cost = {"α + (p-1)(μ+nβ) + (p-1)/p nγ", "p-1"},
     .slots = CopiesForAll,
     .slots_of_split = ChunksForAll},
    {.collective = Collective::kReduceScatter,
     .name = "pairwise",
     .also = "pairwise exchange",
     .source = kMpich,
     .how = "In step i each rank sends the rank i after it that rank's "
            "chunk, and reduces what comes from the rank i before it.",
     .algorithm = ForSeveral<PairwiseReduceScatter>,
     .cost = {"α + (p-1)μ + (p-1)/p nβ + (p-1)/p nγ", "p-1"},
     .remark = "What is sent is input, so no message waits for another. With "
               "the smallest number of slots, two of which are for what "
               "arrives, the first term is (p-2)α; in the textbooks, where "
               "all ranks keep step, it is (p-1)α.",
     .slots = SlotsOfPairwiseReduction},
    {.collective = Collective::kAllGather,
     .name = "all_pairs",
     .also = "direct all-gather; spread-out",
     .source = "the second phase of allreduce by all pairs",
     .how = "Each rank gives all others its chunk.",
     .algorithm = AllGather,
     .cost = {"α + (p-1)μ + (p-1)/p nβ", "p-1"},
     .slots = CopiesForAll},
    {.collective = Collective::kBroadcast,
     .name = "all_pairs",
     .source = "a scatter, then the all-gather by all pairs",
     .how = "The root gives each rank one chunk of the message, and each "
            "gives its chunk to all others.",
     .algorithm = Broadcast,
     .cost = {"2α + 2(p-1)μ + 2(p-1)/p nβ", "2(p-1)"},
     .remark = "Between 2 ranks the first term is α.",
     .slots = ScatteredByRoot,
     .slots_of_unlike = CopiesForAll},
    {.collective = Collective::kBarrier,
     .name = "all_to_all",
     .source = kGloo,
     .how = "Each rank tells all others that it has come.",
     .algorithm = ForSeveral<OneShot>,
     .cost = {"α + (p-1)μ", "p-1"},
     .slots = CopiesForAll},
    {.collective = Collective::kAllToAll,
     .name = "all_at_once",
     .also = "linear; spread-out; isend-irecv",
     .source = kMpich,
     .how = "Each rank sends all others their chunk, and takes theirs as "
            "they come.",
     .algorithm = AllToAllAtOnce,
     .cost = {"α + (p-1)μ + (p-1)/p nβ", "p-1"},
     .slots = CopiesForAll,
     .takes_counts_of_pairs = true},
    {.collective = Collective::kAllToAll,
     .name = "pairwise",
     .also = "pairwise exchange",
     .source = kMpich,
     .how = "In step i each rank sends the rank i after it that rank's "
            "chunk, and takes one from the rank i before it.",
     .algorithm = PairwiseAllToAll,
     .cost = {"α + (p-1)μ + (p-1)/p nβ", "p-1"},
     .remark = "What is sent is input, so no message waits for another. With "
               "the smallest number of slots, one of which is for what "
               "arrives, the first term is (p-1)α, as in the textbooks, "
               "where all ranks keep step.",
     .slots = OneMoreThanDepth,
     .in_place = false,
     .takes_counts_of_pairs = true},
};

}  // namespace

std::span<const AlgorithmInfo> AllPairs() { return kAllPairs; }

}  // namespace ringpipe
