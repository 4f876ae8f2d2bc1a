// What is known of a collective algorithm besides its schedules: a row of the
// registry.
#ifndef RINGPIPE_ENGINE_ALGORITHMS_ALGORITHM_H_
#define RINGPIPE_ENGINE_ALGORITHMS_ALGORITHM_H_

#include <string_view>

#include "pipeline/collective.h"
#include "pipeline/schedule.h"

namespace ringpipe {

// What an algorithm costs between ranks that are all equally far from each
// other, with links that can send and receive at the same time. Formulas, in
// which things that stand side by side are multiplied ("2(p-1)/p nβ"), of
//
// clang-format off
//   p       ranks                       n     bytes of the whole message
//   α       latency                     μ     time that a link spends on a
//                                             message, however short
//   β       time on a link, a byte      γ     time to reduce a byte
//   k       sub-chunks of each chunk    lg p  log2 p; ⌊lg p⌋ and ⌈lg p⌉,
//                                             rounded down and up
//   a       2^⌊lg p⌋                    h     1 where p > 3/2 a, else 0
//   s       the sum of 2^j + min(2^j, p-a) for all j < ⌊lg p⌋
//   t       the ones in the binary digits of the numbers below p
//   w       p is a sum of powers of two, its blocks. For block b, whose next
//           larger block is b': 2 lg b + b'/b + 1; without b'/b for the
//           largest, without the 1 for the smallest. w is the largest of these
//   r, c    rows and columns in which the ranks lie
// clang-format on
//
// Tests hold the first against the simulator, the second against the checker.
struct Cost {
  // Enough slots, and where `k` does not occur, one sub-chunk. Each of α, μ, β
  // and γ is multiplied by what takes longest if the other three are 0; the
  // terms add up where nothing overlaps, which the textbooks assume. (Their α
  // is α + μ: put α = 0.) The factor of α is the longest chain of messages of
  // which each can leave only when the one before has arrived.
  std::string_view time = {};
  // The messages that the busiest rank sends, for each sub-chunk.
  std::string_view sends = {};
};

// In the order in which a row reads.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
struct AlgorithmInfo {
  Collective collective = Collective::kAllReduce;
  // "ring": as users name it; no two of a collective share it.
  std::string_view name;
  // What it, or one that differs in details, is called elsewhere.
  std::string_view also = {};
  // Where it is described.
  std::string_view source;
  // What its ranks do, for users.
  std::string_view how = {};
  Algorithm algorithm = nullptr;

  Cost cost = {};
  // Where the number of ranks is no power of two; empty: the same.
  Cost cost_off_powers = {};
  // What the formulas do not say.
  std::string_view remark = {};

  // What follows is the same for all ranks and roots of a Member's like.

  // For a rank, with `depth` sub-chunks a round: the smallest number of slots
  // with which it cannot get stuck, whichever memory is registered.
  int (*slots)(const Member& of, int depth) = nullptr;
  // The same where connections are not all alike; nullptr: no more.
  int (*slots_of_unlike)(const Member& of, int depth) = nullptr;
  // Enough where its ranges are split into messages of one chunk, as those of
  // chunks that belong to ranks and do not fit into a slot; nullptr: no more.
  int (*slots_of_split)(const Member& of, int depth) = nullptr;
  // Whether there is one for so many ranks on these hosts; nullptr: for all.
  bool (*exists)(const Member& of) = nullptr;

  // Works where output is input.
  bool in_place = true;
  // The result is the same bits on all ranks.
  bool same_bits = true;
  // Of an all-to-all: each chunk goes straight to whom it is for, and may have
  // a length of its own.
  bool takes_counts_of_pairs = false;
  // Of PlanOptions: no two ranks wait for each other with it.
  bool direct_over_sent = false;
};

inline bool Exists(const AlgorithmInfo& info, const Member& of) {
  return info.exists == nullptr || info.exists(of);
}

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_ALGORITHMS_ALGORITHM_H_
