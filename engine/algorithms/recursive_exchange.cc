// Recursive halving and doubling: in each step the ranks whose numbers differ
// in one bit exchange half of what they have yet to reduce, or all that they
// have.
#include <bit>
#include <vector>

#include "engine/algorithms/families.h"

namespace ringpipe {
namespace {

// The chunks of one rank's exchanges, either one for each rank that acts
// (where no rank is owed any in particular) or one for each rank.
class Blocks {
 public:
  Blocks(const Fold& fold, int size, bool of_ranks)
      : fold_(fold),
        chunks_(of_ranks ? size : fold.actors()),
        of_ranks_(of_ranks) {}

  int chunks() const { return chunks_; }
  // What `count` actors from `actor` act for.
  Place Of(Place::Buffer buffer, int actor, int count) const {
    const int begin = Begin(actor);
    return {buffer, begin, Begin(actor + count) - begin};
  }

 private:
  int Begin(int actor) const {
    return actor == fold_.actors() ? chunks_
           : of_ranks_             ? fold_.RankOf(actor)
                                   : actor;
  }

  const Fold& fold_;
  const int chunks_;
  const bool of_ranks_;
};

using Buffer = Place::Buffer;

// Halves what is left until each actor has reduced what it acts for, by the
// bits of its number from the highest, so that what is left is a range. The
// values are in `buffer`; those at the end go to `result`.
void Halve(const Fold& fold, const Blocks& blocks, int actor, Buffer buffer,
           Buffer result, std::vector<Transfer>& transfers) {
  for (int count = fold.actors() / 2; count > 0; count /= 2) {
    const int kept = actor & -count;
    const int peer = fold.RankOf(actor ^ count);
    transfers.push_back(
        Transfer::Send(blocks.Of(buffer, kept ^ count, count), peer));
    const Place own = blocks.Of(buffer, kept, count);
    transfers.push_back(Transfer::ReceiveReduce(
        own, blocks.Of(count > 1 ? Buffer::kScratch : result, kept, count),
        peer, count == 1));
    buffer = Buffer::kScratch;
  }
}

// Doubles what each actor has of the output until it has all of it.
void Double(const Fold& fold, const Blocks& blocks, int actor,
            std::vector<Transfer>& transfers) {
  for (int count = 1; count < fold.actors(); count *= 2) {
    const int own = actor & -count;
    const int peer = fold.RankOf(actor ^ count);
    transfers.push_back(
        Transfer::Send(blocks.Of(Buffer::kOutput, own, count), peer));
    transfers.push_back(Transfer::ReceiveCopy(
        blocks.Of(Buffer::kOutput, own ^ count, count), peer));
  }
}

// A reduce-scatter by halving, then an all-gather by doubling.
Schedule RabenseifnerAllReduce(const Member& self) {
  const Fold fold(self.size);
  const Blocks blocks(fold, self.size, /*of_ranks=*/false);
  const int all = blocks.chunks();
  if (fold.IsFolded(self.rank)) {
    return {all,
            0,
            {Transfer::Send(Input(0, all), self.rank - 1),
             Transfer::ReceiveCopy(Output(0, all), self.rank - 1)}};
  }
  const int actor = fold.ActorOf(self.rank);
  Schedule schedule = {all, all, {}};
  if (fold.IsDouble(actor)) {
    schedule.transfers.push_back(
        Transfer::ReceiveReduce(Input(0, all), Scratch(0, all), self.rank + 1));
  }
  Halve(fold, blocks, actor,
        fold.IsDouble(actor) ? Buffer::kScratch : Buffer::kInput,
        Buffer::kOutput, schedule.transfers);
  Double(fold, blocks, actor, schedule.transfers);
  if (fold.IsDouble(actor)) {
    schedule.transfers.push_back(Transfer::Send(Output(0, all), self.rank + 1));
  }
  return schedule;
}

Schedule HalvingReduceScatter(const Member& self) {
  const Fold fold(self.size);
  const Blocks blocks(fold, self.size, /*of_ranks=*/true);
  const int all = self.size;
  if (fold.IsFolded(self.rank)) {
    return {all,
            0,
            {Transfer::Send(Input(0, all), self.rank - 1),
             Transfer::ReceiveCopy(Output(self.rank), self.rank - 1)}};
  }
  const int actor = fold.ActorOf(self.rank);
  Schedule schedule = {all, all, {}};
  std::vector<Transfer>& transfers = schedule.transfers;
  if (!fold.IsDouble(actor)) {
    Halve(fold, blocks, actor, Buffer::kInput, Buffer::kOutput, transfers);
    return schedule;
  }
  // It ends with two chunks, of which it keeps one.
  transfers.push_back(
      Transfer::ReceiveReduce(Input(0, all), Scratch(0, all), self.rank + 1));
  Halve(fold, blocks, actor, Buffer::kScratch, Buffer::kScratch, transfers);
  transfers.push_back(
      Transfer::LocalCopy(Scratch(self.rank), Output(self.rank)));
  transfers.push_back(Transfer::Send(Scratch(self.rank + 1), self.rank + 1));
  return schedule;
}

Schedule DoublingAllGather(const Member& self) {
  const Fold fold(self.size);
  const Blocks blocks(fold, self.size, /*of_ranks=*/true);
  const int all = self.size;
  Schedule schedule = {
      all, 0, {Transfer::LocalCopy(Input(self.rank), Output(self.rank))}};
  std::vector<Transfer>& transfers = schedule.transfers;
  if (fold.IsFolded(self.rank)) {  // it gets all others, around its own
    transfers.push_back(Transfer::Send(Input(self.rank), self.rank - 1));
    transfers.push_back(Transfer::ReceiveCopy(
        Output(Modulo(self.rank + 1, all), all - 1), self.rank - 1));
    return schedule;
  }
  const int actor = fold.ActorOf(self.rank);
  if (fold.IsDouble(actor)) {
    transfers.push_back(
        Transfer::ReceiveCopy(Output(self.rank + 1), self.rank + 1));
  }
  Double(fold, blocks, actor, transfers);
  if (fold.IsDouble(actor)) {
    transfers.push_back(Transfer::Send(
        Output(Modulo(self.rank + 2, all), all - 1), self.rank + 1));
  }
  return schedule;
}

// In each step the ranks of two groups exchange what they have of all chunks
// but those that they end with themselves.
Schedule DoublingReduceScatter(const Member& self) {
  // The chunks of its own group that others end with take part too, though
  // their sums are of no use: so they have to be something.
  Schedule schedule = {
      self.size,
      self.size,
      {Transfer::LocalCopy(Input(0, self.size), Scratch(0, self.size))}};
  for (int group = 1; group < self.size; group *= 2) {
    const int own = self.rank & -group;
    const int peer = self.rank ^ group;
    const int count = self.size - group;
    const Place kept = Scratch(Modulo((own ^ group) + group, self.size), count);
    schedule.transfers.push_back(
        Transfer::Send(Scratch(Modulo(own + group, self.size), count), peer));
    schedule.transfers.push_back(
        Transfer::ReceiveReduce(kept, kept, peer, 2 * group == self.size));
  }
  schedule.transfers.push_back(
      Transfer::LocalCopy(Scratch(self.rank), Output(self.rank)));
  return schedule;
}

// All exchange all that they have.
Schedule DoublingAllReduce(const Member& self) {
  const Fold fold(self.size);
  if (fold.IsFolded(self.rank)) {
    return {1,
            0,
            {Transfer::Send(Input(0), self.rank - 1),
             Transfer::ReceiveCopy(Output(0), self.rank - 1)}};
  }
  const int actor = fold.ActorOf(self.rank);
  Schedule schedule = {1, 1, {}};
  Place sum = Input(0);
  if (fold.IsDouble(actor)) {
    schedule.transfers.push_back(
        Transfer::ReceiveReduce(sum, Scratch(0), self.rank + 1));
    sum = Scratch(0);
  }
  for (int bit = 1; bit < fold.actors(); bit *= 2) {
    const int peer = fold.RankOf(actor ^ bit);
    schedule.transfers.push_back(Transfer::Send(sum, peer));
    const bool last = 2 * bit == fold.actors();
    schedule.transfers.push_back(Transfer::ReceiveReduce(
        sum, last ? Output(0) : Scratch(0), peer, last));
    sum = Scratch(0);
  }
  if (fold.IsDouble(actor)) {
    schedule.transfers.push_back(Transfer::Send(Output(0), self.rank + 1));
  }
  return schedule;
}

// A reduce-scatter by halving, then the chunks go up a binomial tree. Ranks are
// numbered from the root.
Schedule RabenseifnerReduce(const Member& self) {
  const Fold fold(self.size);
  const Blocks blocks(fold, self.size, /*of_ranks=*/false);
  const int all = blocks.chunks();
  const int number = Modulo(self.rank - self.root, self.size);
  Schedule schedule = {all, all, {}};
  std::vector<Transfer>& transfers = schedule.transfers;
  if (fold.IsFolded(number)) {
    transfers.push_back(Transfer::Send(Input(0, all), number - 1));
  } else {
    const int actor = fold.ActorOf(number);
    const Buffer result = actor == 0 ? Buffer::kOutput : Buffer::kScratch;
    if (fold.IsDouble(actor)) {
      transfers.push_back(
          Transfer::ReceiveReduce(Input(0, all), Scratch(0, all), number + 1));
    }
    Halve(fold, blocks, actor,
          fold.IsDouble(actor) ? Buffer::kScratch : Buffer::kInput, result,
          transfers);
    int count = 1;
    for (; count < fold.actors() && actor % (2 * count) == 0; count *= 2) {
      transfers.push_back(Transfer::ReceiveCopy(
          blocks.Of(result, actor + count, count), fold.RankOf(actor + count)));
    }
    if (actor != 0) {
      transfers.push_back(Transfer::Send(blocks.Of(result, actor, count),
                                         fold.RankOf(actor - count)));
    }
  }
  for (Transfer& transfer : transfers) {
    transfer.peer = Modulo(transfer.peer + self.root, self.size);
  }
  return schedule;
}

bool IsForPowerOfTwo(const Member& of) {
  return std::has_single_bit(static_cast<unsigned>(of.size));
}

// Each halving leaves a part of what was received for a later step to send.
int SlotsOfHalvingAndDoubling(const Member& of, int depth) {
  return of.size == 1   ? 0
         : of.size == 2 ? depth + 1
                        : ValuesAndOne(FloorLog(of.size) + 1, depth);
}
int SlotsOfHalvingAndGather(const Member& of, int depth) {
  return of.size == 1 ? 0 : ValuesAndOne(FloorLog(of.size), depth);
}

constexpr std::string_view kRabenseifner =
    "Rabenseifner, \"Optimization of Collective Reduction Operations\", ICCS "
    "2004";

constexpr AlgorithmInfo kRecursiveExchanges[] = {
    {.collective = Collective::kAllReduce,
     .name = "recursive_doubling",
     .also = "butterfly; hypercube exchange",
     .source = kMpich,
     .how = "In step i each rank exchanges its sum with the rank whose "
            "number differs in bit i, and both add. Beyond a power of "
            "two, each of the ranks that are too many first gives all it "
            "has to a neighbour, which acts for both and gives back the "
            "result.",
     .algorithm = ForSeveral<DoublingAllReduce>,
     .cost = {"lg p (α+μ+nβ+nγ)", "lg p"},
     .cost_off_powers = {"(⌊lg p⌋+1+h)α + (⌊lg p⌋+2)(μ+nβ) + (⌊lg p⌋+1)nγ",
                         "⌊lg p⌋+1"},
     .slots = OneMoreThanDepth},
    {.collective = Collective::kAllReduce,
     .name = "rabenseifner",
     .also = "recursive halving and doubling; recursive vector halving, "
             "distance doubling; reduce-scatter and all-gather",
     .source = kRabenseifner,
     .how = "A reduce-scatter by recursive halving, then an all-gather by "
            "recursive doubling. Beyond a power of two, each of the ranks "
            "that are too many first gives all it has to a neighbour, "
            "which acts for both and gives back the result.",
     .algorithm = ForSeveral<RabenseifnerAllReduce>,
     .cost = {"2 lg p (α+μ) + 2(p-1)/p nβ + (p-1)/p nγ", "2 lg p"},
     .cost_off_powers = {"(2⌊lg p⌋+2)(α+μ) + (2+2(a-1)/a)nβ + (1+(a-1)/a)nγ",
                         "2⌊lg p⌋+1"},
     .slots = SlotsOfHalvingAndDoubling},
    {.collective = Collective::kReduceScatter,
     .name = "recursive_halving",
     .also = "Open MPI's recursive halving",
     .source = kMpich,
     .how = "In each step two ranks whose numbers differ in one bit, from "
            "the highest to the lowest, exchange half of what they still "
            "have to reduce: each keeps the half in which its own chunk "
            "is. Beyond a power of two, each of the ranks that are too "
            "many first gives all it has to a neighbour, which acts for "
            "both and gives back the result.",
     .algorithm = ForSeveral<HalvingReduceScatter>,
     .cost = {"lg p (α+μ) + (p-1)/p nβ + (p-1)/p nγ", "lg p"},
     .cost_off_powers =
         {"(⌊lg p⌋+1+h)α + (⌊lg p⌋+2)μ + (1+(s+1)/p)nβ + (1+s/p)nγ",
          "⌊lg p⌋+1"},
     .slots = OneMoreThanDepth,
     .slots_of_split = ChunksAndOne},
    {.collective = Collective::kReduceScatter,
     .name = "recursive_doubling",
     .source = kMpich,
     .how = "In each step two ranks whose numbers differ in one bit, from "
            "the lowest to the highest, exchange their sums of all chunks "
            "but those that their own group of ranks ends with.",
     .algorithm = ForSeveral<DoublingReduceScatter>,
     .cost = {"lg p (α+μ) + (lg p - (p-1)/p)(nβ+nγ)", "lg p"},
     .slots = SlotsOfPairwiseReduction,
     .slots_of_split = ChunksAndOne,
     .exists = IsForPowerOfTwo},
    {.collective = Collective::kAllGather,
     .name = "recursive_doubling",
     .also = "hypercube all-gather",
     .source = kMpich,
     .how = "In step i each rank exchanges all chunks that it has with "
            "the rank whose number differs in bit i. Beyond a power of "
            "two, each of the ranks that are too many first gives all it "
            "has to a neighbour, which acts for both and gives back the "
            "result.",
     .algorithm = DoublingAllGather,
     .cost = {"lg p (α+μ) + (p-1)/p nβ", "lg p"},
     .cost_off_powers = {"(⌊lg p⌋+1+h)α + (⌊lg p⌋+2)μ + (1+s/p)nβ", "⌊lg p⌋+1"},
     .slots = CopiesOfDoublings,
     .slots_of_split = CopiesForAll},
    {.collective = Collective::kReduce,
     .name = "rabenseifner",
     .also = "reduce-scatter and gather",
     .source = kRabenseifner,
     .how = "A reduce-scatter by recursive halving; then the chunks go up "
            "a binomial tree to the root. Beyond a power of two, each of "
            "the ranks that are too many first gives all it has to a "
            "neighbour, which acts for both.",
     .algorithm = ForSeveral<RabenseifnerReduce>,
     .cost = {"2 lg p (α+μ) + 2(p-1)/p nβ + (p-1)/p nγ", "lg p + 1"},
     .cost_off_powers = {"(2⌊lg p⌋+1)(α+μ) + (1+2(a-1)/a)nβ + (1+(a-1)/a)nγ",
                         "⌊lg p⌋+1"},
     .slots = SlotsOfHalvingAndGather},
    {.collective = Collective::kBarrier,
     .name = "recursive_doubling",
     .source = kMpich,
     .how = "In step i each rank exchanges what it has heard with the "
            "rank whose number differs in bit i. Beyond a power of two, "
            "each of the ranks that are too many first gives all it has "
            "to a neighbour, which acts for both and gives back the "
            "result.",
     .algorithm = ForSeveral<DoublingAllReduce>,
     .cost = {"lg p (α+μ)", "lg p"},
     .cost_off_powers = {"(⌊lg p⌋+1+h)α + (⌊lg p⌋+2)μ", "⌊lg p⌋+1"},
     .slots = OneMoreThanDepth},
};

}  // namespace

std::span<const AlgorithmInfo> RecursiveExchanges() {
  return kRecursiveExchanges;
}

}  // namespace ringpipe
