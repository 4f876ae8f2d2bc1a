#include "engine/pair_counts.h"

#include <cstddef>
#include <string>

namespace ringpipe {

std::vector<PairCounts> PairCountsOf(const CallBuffers& buffers) {
  const std::vector<std::uint64_t>& sent = *buffers.borders;
  const std::vector<std::uint64_t>& received = *buffers.receive_borders;
  std::vector<PairCounts> counts;
  for (std::size_t peer = 0; peer + 1 < sent.size(); ++peer) {
    counts.push_back(
        {sent[peer + 1] - sent[peer], received[peer + 1] - received[peer]});
  }
  return counts;
}

Status ComparePairCounts(int rank, std::uint64_t sequence,
                         const std::vector<PairCounts>& own,
                         const std::vector<PairCounts>& others) {
  for (std::size_t peer = 0; peer < own.size(); ++peer) {
    const PairCounts& here = own[peer];
    const PairCounts& there = others[peer];
    if (there != PairCounts{here.received, here.sent}) {
      return {StatusCode::kMismatch,
              "collective call number " + std::to_string(sequence) +
                  ", all-to-all, differs in the counts of a pair: rank " +
                  std::to_string(rank) + " has " + std::to_string(here.sent) +
                  " elements for rank " + std::to_string(peer) +
                  ", which takes " + std::to_string(there.received) +
                  ", and takes " + std::to_string(here.received) + " of the " +
                  std::to_string(there.sent) +
                  " that it has; both must give the same"};
    }
  }
  return Status::Ok();
}

}  // namespace ringpipe
