// The families of algorithms, each in a file of its own, and what they share.
// The registry lists them all.
#ifndef RINGPIPE_ENGINE_ALGORITHMS_FAMILIES_H_
#define RINGPIPE_ENGINE_ALGORITHMS_FAMILIES_H_

#include <bit>
#include <span>
#include <string_view>

#include "engine/algorithms/algorithm.h"

namespace ringpipe {

std::span<const AlgorithmInfo> Rings();
std::span<const AlgorithmInfo> AllPairs();
std::span<const AlgorithmInfo> RecursiveExchanges();
std::span<const AlgorithmInfo> BruckAlgorithms();
std::span<const AlgorithmInfo> BinaryBlocks();
std::span<const AlgorithmInfo> BinomialTrees();
std::span<const AlgorithmInfo> DoubleBinaryTrees();
std::span<const AlgorithmInfo> Grids();
std::span<const AlgorithmInfo> Linear();

inline constexpr std::string_view kMpich =
    "Thakur, Rabenseifner and Gropp, \"Optimization of Collective "
    "Communication "
    "Operations in MPICH\", Int. J. High Perform. Comput. Appl. 19, 2005";
inline constexpr std::string_view kBruck =
    "Bruck, Ho, Kipnis, Upfal and Weathersby, \"Efficient Algorithms for "
    "All-to-All Communications in Multiport Message-Passing Systems\", IEEE "
    "Trans. Parallel Distrib. Syst. 8, 1997";
inline constexpr std::string_view kGloo = "Gloo, docs/algorithms.md";

// --- Smallest numbers of slots -----------------------------------------------
//
// In each, the worst case is that of user memory that is not registered, so
// that a first send holds a slot with its copy.

// For schedules in which each rank keeps one value a sub-chunk and exchanges it
// step by step: depth + 1. Let (round, step, sub-chunk) be the earliest receive
// that is not posted anywhere. Its rank holds at most `depth` values, those of
// the last step that it has taken for each sub-chunk of the round, because the
// slots of older values went back when they were sent and reduced, which waits
// only for receives posted earlier still. So with one slot more it can be
// posted, and its message is on the way for the same reason. With only `depth`,
// every rank fills them with the values of its first send, and nobody can
// receive.
inline int OneMoreThanDepth(const Member& of, int depth) {
  return of.size == 1 ? 0 : depth + 1;
}

// For a chain or tree: depth. A rank between issues the receives of a round's
// sub-chunks before the first send of one, so it needs a slot for each; then it
// waits only for ranks farther from the root, and those wait for nobody. Where
// there is no rank between, each send and receive gives its slot back by
// itself.
inline int Depth(const Member& of, int depth) {
  return of.size == 1 ? 0 : of.size == 2 ? 1 : depth;
}

// Where every rank sends a part to each other before it receives: its copies
// of these, and one more. The earliest receive that is not posted anywhere
// finds at most (size - 1) * depth slots taken: copies that wait to be read
// and, for each peer that has read its copy, the value that came back instead.
inline int CopiesForAll(const Member& of, int depth) {
  return of.size == 1 ? 0 : (of.size - 1) * depth + 1;
}

// The same where each part goes in messages of one chunk.
inline int ChunksForAll(const Member& of, int depth) {
  return of.size == 1 ? 0 : of.size * (of.size - 1) * depth + 1;
}

// In which only the root has copies for all, and its peers take them without
// waiting for anything else. But where a part arrives in memory that some
// connections do not reach, it is copied for each of these: CopiesForAll.
inline int ScatteredByRoot(const Member& of, int depth) {
  return of.size == 1 ? 0 : of.size == 2 ? 1 : depth + 1;
}

// A few values a sub-chunk that are held until later steps, and one more.
inline int ValuesAndOne(int values, int depth) { return values * depth + 1; }

// Where what is sent doubles, and is sent from memory: a copy of each of the
// last steps', of which a peer may be that much behind.
inline int CopiesOfDoublings(const Member& of, int depth) {
  return of.size == 1
             ? 0
             : ValuesAndOne(
                   std::bit_width(static_cast<unsigned>(of.size - 1) / 3) + 1,
                   depth);
}

// The sum, and a copy of what is sent next, or of what is left of the input.
inline int SlotsOfPairwiseReduction(const Member& of, int depth) {
  return of.size == 1 ? 0 : ValuesAndOne(of.size == 2 ? 1 : 2, depth);
}

// Of ranges that are split: a slot for each chunk that is passed on.
inline int ChunksAndOne(const Member& of, int depth) {
  return of.size == 1 ? 0 : ValuesAndOne(of.size, depth);
}
inline int HalfAndOne(const Member& of, int depth) {
  return of.size == 1 ? 0 : ValuesAndOne(of.size / 2, depth);
}

// Of two ranks one only hands in, and one only receives.
inline int OneMoreThanDepthFromThree(const Member& of, int depth) {
  return of.size == 1 ? 0 : of.size == 2 ? depth : depth + 1;
}

// --- Shared ------------------------------------------------------------------

// Where there is one rank.
inline Schedule CopyOfInput() {
  return {1, 0, {Transfer::LocalCopy(Input(0), Output(0))}};
}

// An algorithm for two ranks or more, and for one.
template <Algorithm kAlgorithm>
Schedule ForSeveral(const Member& self) {
  return self.size == 1 ? CopyOfInput() : kAlgorithm(self);
}

inline int Modulo(int value, int size) {
  return ((value % size) + size) % size;
}

// log2, rounded down and up.
inline int FloorLog(int size) {
  return std::bit_width(static_cast<unsigned>(size)) - 1;
}
// The largest power of two that is no more.
inline int FloorPower(int size) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
}
inline int CeilLog(int size) {
  return std::bit_width(static_cast<unsigned>(size - 1));
}

// Where an exchange needs a power of two, the ranks beyond it are folded: of
// the first ranks each second one hands its part to the one before it, which
// acts for both. Those that act are numbered from 0.
class Fold {
 public:
  explicit Fold(int size)
      : actors_(FloorPower(size)), folded_(size - actors_) {}

  int actors() const { return actors_; }
  bool IsFolded(int rank) const { return rank < 2 * folded_ && rank % 2 != 0; }
  // Of a rank that is not folded.
  int ActorOf(int rank) const {
    return rank < 2 * folded_ ? rank / 2 : rank - folded_;
  }
  int RankOf(int actor) const {
    return actor < folded_ ? 2 * actor : actor + folded_;
  }
  // Whether the actor acts for the next rank too.
  bool IsDouble(int actor) const { return actor < folded_; }

 private:
  const int actors_;
  const int folded_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_ALGORITHMS_FAMILIES_H_
