// The registry of collective algorithms, and which of them a call takes.
//
// Each is a pure function to a schedule, in the file of its family in
// algorithms/, with a row of what is known of it. To add one: write the
// function beside its relatives, and its row in the table below them. The
// executor, the checker and its tests, and the simulator take it from there.
#ifndef RINGPIPE_ENGINE_ALGORITHMS_H_
#define RINGPIPE_ENGINE_ALGORITHMS_H_

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"
#include "engine/algorithms/algorithm.h"
#include "engine/hosts.h"
#include "pipeline/chunking.h"

namespace ringpipe {

// By chunks where the interface ties them to ranks.
constexpr Walk WalkOf(Collective collective) {
  return InfoOf(collective).has_parts ? Walk::kChunks : Walk::kSegments;
}

// Every algorithm. Static.
std::span<const AlgorithmInfo> Algorithms();

// nullptr where the collective has none of that name.
const AlgorithmInfo* FindAlgorithm(Collective collective,
                                   std::string_view name);

// What the schedules of all ranks have in common.
struct Shape {
  int chunks = 1;
  int widest = 1;  // the most chunks that a range has: what a slot is to hold
};
Shape ShapeOf(const AlgorithmInfo& info, const Member& of);

// Whether a schedule of that shape runs by messages of one chunk (SplitRanges),
// because a sub-chunk of its widest range does not lie together or is more than
// a slot's `slot_elements`.
bool HasToSplit(const Chunking& chunking, Walk walk, const Shape& shape,
                std::uint64_t slot_elements);

// PlanOptions::same_to_all.
bool SameToAll(const AlgorithmInfo& info, const Member& of);

// The slots of a rank with which it cannot get stuck, with any connections and
// chunks of any length; without `split`, where its ranges are not split.
int SlotsFor(const AlgorithmInfo& info, const Member& of, int depth,
             bool split = true);

// Which algorithm a call takes: the one that the user has chosen for the
// collective, else what is best by size, by whether all ranks share memory, and
// by how many of them share a processor.
class AlgorithmChoice {
 public:
  // All are chosen by the engine.
  AlgorithmChoice() = default;
  // "allreduce:rabenseifner,barrier:dissemination", for so many ranks on these
  // hosts; "mpich": as MPICH chooses, where it says how; empty: as above.
  // kInvalidArgument, with the names that there are, for others.
  // `subchunk_bytes`: RINGPIPE_SUBCHUNK_BYTES.
  static Result<AlgorithmChoice> Parse(std::string_view text, const Member& of,
                                       std::uint64_t subchunk_bytes = kNoLimit);

  // For a message that as a whole has so many bytes. Of Algorithms().
  const AlgorithmInfo& For(Collective collective, std::uint64_t bytes,
                           const CommonHost& host = {}) const;

  // The slots with which no algorithm that a call may take can deadlock.
  int SlotsNeeded(const Member& of, int depth, const CommonHost& host) const;

  // The slots that a rank has unless RINGPIPE_SLOTS says how many.
  int Slots(const Member& of, int depth, const CommonHost& host) const;

  // Sub-chunks a round: RINGPIPE_DEPTH, or fewer where, with many ranks on one
  // host, the slots for their copies would take too much memory.
  int DepthFor(int depth, std::uint64_t subchunk_bytes, const Member& of,
               const CommonHost& host) const;

 private:
  static constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};
  const AlgorithmInfo* Chosen(Collective collective) const {
    return chosen_[static_cast<std::size_t>(collective)];
  }

  int size_ = 1;
  std::uint64_t subchunk_bytes_ = kNoLimit;
  bool is_mpichs_ = false;
  // By collective; nullptr: the engine's.
  std::array<const AlgorithmInfo*, kCollectives> chosen_ = {};
};

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_ALGORITHMS_H_
