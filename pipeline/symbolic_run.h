// One run of the plans of all ranks, on symbolic values.
#ifndef RINGPIPE_PIPELINE_SYMBOLIC_RUN_H_
#define RINGPIPE_PIPELINE_SYMBOLIC_RUN_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "pipeline/checker.h"
#include "pipeline/plan.h"
#include "pipeline/term_table.h"

namespace ringpipe {

// User memory of all ranks: before a run their inputs, after it their outputs.
class SymbolicMemory {
 public:
  // Keeps `plans` by reference.
  SymbolicMemory(const std::vector<Plan>& plans, std::uint64_t subchunks)
      : plans_(plans),
        subchunks_(subchunks),
        terms_(2 * plans.size() * plans[0].chunks * subchunks) {}

  TermTable::Term& At(int rank, Place place, std::uint64_t subchunk) {
    const bool in_output =
        place.buffer == Place::Buffer::kOutput || plans_[rank].in_place;
    const std::uint64_t buffer = 2 * rank + (in_output ? 1 : 0);
    return terms_[(buffer * plans_[0].chunks + place.chunk) * subchunks_ +
                  subchunk];
  }

 private:
  const std::vector<Plan>& plans_;
  const std::uint64_t subchunks_;
  std::vector<TermTable::Term> terms_;
};

// Drives one Flow a rank as the executor would, in an order of its choice,
// until nothing can happen any more. kInternal where that is before the end, or
// kResourceExhausted where a rank then lacks a slot. `messages`: a hash of all
// of them, each with its number on its connection. options.subchunks is not 0.
Status RunSymbolically(const std::vector<Plan>& plans,
                       const CheckOptions& options, TermTable& terms,
                       SymbolicMemory& memory, std::uint64_t& messages);

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_SYMBOLIC_RUN_H_
