// An all-to-all in which each pair of ranks has counts of its own: the two
// compare them before a byte is sent.
#ifndef RINGPIPE_ENGINE_PAIR_COUNTS_H_
#define RINGPIPE_ENGINE_PAIR_COUNTS_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "engine/checked_call.h"

namespace ringpipe {

// What a rank sends to another one, and what it receives from it, in elements.
// Plain data between ranks of one version.
struct PairCounts {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;

  bool operator==(const PairCounts&) const = default;
};

// By rank; of a call that has receive_borders.
std::vector<PairCounts> PairCountsOf(const CallBuffers& buffers);

// `others`: by rank, what each says of its pair with `rank`. kMismatch, with
// the counts of both, for the first pair whose ranks do not say the same.
Status ComparePairCounts(int rank, std::uint64_t sequence,
                         const std::vector<PairCounts>& own,
                         const std::vector<PairCounts>& others);

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_PAIR_COUNTS_H_
