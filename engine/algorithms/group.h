// A reduce-scatter and an all-gather among some of the ranks, around a ring or
// directly: what several algorithms are made of.
#ifndef RINGPIPE_ENGINE_ALGORITHMS_GROUP_H_
#define RINGPIPE_ENGINE_ALGORITHMS_GROUP_H_

#include <vector>

#include "pipeline/schedule.h"

namespace ringpipe {

// All ranks, those of a host one after the other, hosts and the ranks of each
// in the order of their numbers.
std::vector<int> InHostOrder(const Member& self);

// Some ranks in some order, one of them this one. What they reduce or gather is
// divided into blocks of equally many chunks, one for each.
class Group {
 public:
  // `ranks[i]` has the block that begins with chunk `chunks[i]`.
  Group(int self, std::vector<int> ranks, std::vector<int> chunks, int width);

  int size() const { return static_cast<int>(ranks_.size()); }
  // The rank that follows this one by so many places, and its block.
  int RankAfter(int places) const { return ranks_[PlaceAfter(places)]; }
  Place BlockAfter(int places, Place::Buffer buffer) const {
    return {buffer, chunks_[PlaceAfter(places)], width_};
  }

  // What a reduction reads first, and where its result goes.
  struct Reduction {
    Place::Buffer from = Place::Buffer::kInput;
    Place::Buffer to = Place::Buffer::kOutput;
    bool finish = true;  // whether all contributions are in then
  };
  // Each of these appends to a schedule of which scratch has all chunks.

  // size() - 1 steps in which a partial sum comes from the previous rank, gets
  // this one's part, and goes on; this rank ends with the block of the one that
  // follows it by `last` places.
  void ReduceAround(int last, Reduction reduction, Schedule& schedule) const;
  // size() - 1 steps in which whole blocks of output go on. This rank begins
  // with `own`, the block of the one that follows it by `first` places.
  void GatherAround(int first, Place own, Schedule& schedule) const;

  // Each gives each other its part and reduces its own block of all.
  void ReduceDirectly(Reduction reduction, Schedule& schedule) const;
  // Each gives all others its block, which lies in `own`.
  void GatherDirectly(Place own, Schedule& schedule) const;

 private:
  int PlaceAfter(int places) const;

  std::vector<int> ranks_;
  std::vector<int> chunks_;
  int width_;
  int place_;
};

// All ranks; rank r has chunk r.
Group InRankOrder(const Member& self);
Group AsRing(const Member& self);  // in host order

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_ALGORITHMS_GROUP_H_
