// Halving and doubling by binary blocks: where the number of ranks is no power
// of two, they form blocks of different powers of two, the largest first.
#include <algorithm>
#include <vector>

#include "engine/algorithms/families.h"

namespace ringpipe {
namespace {

using Buffer = Place::Buffer;

// A block of ranks. The message has as many chunks as the largest block ranks,
// and each of its ranks reduces, among its block, an equal part of it.
struct Block {
  int all;    // ranks in all
  int ranks;  // 0: there is no such block

  int begin() const { return all / (2 * ranks) * (2 * ranks); }
  Block Larger() const {
    int larger = 2 * ranks;
    while (larger <= all && (all & larger) == 0) {
      larger *= 2;
    }
    return {all, larger <= all ? larger : 0};
  }
  Block Smaller() const {
    int smaller = ranks / 2;
    while (smaller > 0 && (all & smaller) == 0) {
      smaller /= 2;
    }
    return {all, smaller};
  }
  explicit operator bool() const { return ranks > 0; }

  // The bits of `index` from the last one to the first: which part the index-th
  // rank reduces, and who reduces the index-th part.
  int Reverse(int index) const {
    int reversed = 0;
    for (int bit = 1; bit < ranks; bit *= 2) {
      reversed = 2 * reversed + (index & bit ? 1 : 0);
    }
    return reversed;
  }
  int RankOfPart(int part) const { return begin() + Reverse(part); }
  int PartOf(int rank) const { return Reverse(rank - begin()); }
  Place Part(Buffer buffer, int part) const {
    const int chunks = FloorPower(all) / ranks;
    return {buffer, part * chunks, chunks};
  }
};

Block BlockOf(int rank, int size) {
  Block block = {size, FloorPower(size)};
  while (rank >= block.begin() + block.ranks) {
    block = block.Smaller();
  }
  return block;
}

// One of a step's two sides, which halve what both have.
struct Halves {
  Place kept;
  Place given;
  int peer;
};

// From the neighbour to the farthest.
std::vector<Halves> HalvesOf(const Block& block, int rank) {
  std::vector<Halves> steps;
  int begin = 0;
  int count = FloorPower(block.all);
  for (int distance = 1; distance < block.ranks; distance *= 2) {
    count /= 2;
    const bool upper = ((rank - block.begin()) & distance) != 0;
    steps.push_back({Input(begin + (upper ? count : 0), count),
                     Input(begin + (upper ? 0 : count), count),
                     block.begin() + ((rank - block.begin()) ^ distance)});
    begin = steps.back().kept.chunk;
  }
  return steps;
}

Place In(Buffer buffer, Place place) {
  place.buffer = buffer;
  return place;
}

// Reduces within the blocks, then from the smallest block to the largest, and
// hands the results back the same way.
Schedule HalvingDoubling(const Member& self) {
  const Block block = BlockOf(self.rank, self.size);
  const Block larger = block.Larger();
  const Block smaller = block.Smaller();
  const int part = block.PartOf(self.rank);
  const int chunks = FloorPower(self.size);
  Schedule schedule = {chunks, chunks, {}};
  std::vector<Transfer>& transfers = schedule.transfers;

  Buffer sum = Buffer::kInput;
  const auto reduce = [&](Place place, int peer, bool last) {
    const Buffer target = last ? Buffer::kOutput : Buffer::kScratch;
    transfers.push_back(
        Transfer::ReceiveReduce(In(sum, place), In(target, place), peer, last));
    sum = target;
  };
  const std::vector<Halves> steps = HalvesOf(block, self.rank);
  for (const Halves& step : steps) {
    transfers.push_back(Transfer::Send(In(sum, step.given), step.peer));
    reduce(step.kept, step.peer, !larger && !smaller && &step == &steps.back());
  }
  if (smaller) {
    reduce(block.Part(sum, part),
           smaller.RankOfPart(part * smaller.ranks / block.ranks), !larger);
  }
  if (larger) {
    const int parts = larger.ranks / block.ranks;
    for (int i = part * parts; i < (part + 1) * parts; ++i) {
      transfers.push_back(
          Transfer::Send(larger.Part(sum, i), larger.RankOfPart(i)));
    }
    for (int i = part * parts; i < (part + 1) * parts; ++i) {
      transfers.push_back(Transfer::ReceiveCopy(larger.Part(Buffer::kOutput, i),
                                                larger.RankOfPart(i)));
    }
  }
  if (smaller) {
    transfers.push_back(
        Transfer::Send(block.Part(Buffer::kOutput, part),
                       smaller.RankOfPart(part * smaller.ranks / block.ranks)));
  }
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    transfers.push_back(
        Transfer::Send(In(Buffer::kOutput, step->kept), step->peer));
    transfers.push_back(
        Transfer::ReceiveCopy(In(Buffer::kOutput, step->given), step->peer));
  }
  return schedule;
}

// Each halving leaves a part of what was received for a later step to send; and
// the results come to a smaller block in as many parts as its larger one has.
int SlotsOfBlocks(const Member& of, int depth) {
  if (of.size == 1) {
    return 0;
  }
  int values = of.size < 4 ? 1 : FloorLog(of.size) + 1;
  Block larger = {of.size, FloorPower(of.size)};
  for (Block block = larger.Smaller(); block.ranks > 1;
       block = block.Smaller()) {
    values =
        std::max(values, larger.ranks / block.ranks + FloorLog(block.ranks));
    larger = block;
  }
  return ValuesAndOne(values, depth);
}

constexpr AlgorithmInfo kBinaryBlocks[] = {
    {.collective = Collective::kAllReduce,
     .name = "halving_doubling",
     .also = "binary blocks; gloo's halving-doubling",
     .source = kGloo,
     .how = "As rabenseifner, but from the nearest rank to the farthest. "
            "Off powers of two the ranks form blocks of different powers "
            "of two: each block reduces by itself, then each hands its "
            "sums to the next larger one, and gets the results back the "
            "same way.",
     .algorithm = ForSeveral<HalvingDoubling>,
     .cost = {"2 lg p (α+μ) + 2(p-1)/p nβ + (p-1)/p nγ", "2 lg p"},
     .cost_off_powers = {"2⌊lg p⌋α", "w"},
     .remark = "Off powers of two the other terms depend on how unlike the "
               "blocks are: a rank of a small block has a message for each "
               "of several ranks of the larger one. Up to 64 ranks the "
               "factor of nβ is at most 4.2, that of nγ at most 1.5.",
     .slots = SlotsOfBlocks},
};

}  // namespace

std::span<const AlgorithmInfo> BinaryBlocks() { return kBinaryBlocks; }

}  // namespace ringpipe
