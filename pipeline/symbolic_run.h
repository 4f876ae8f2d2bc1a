// One run of the plans of all ranks, on symbolic values.
//
// The run has what a real one has: Compile's waits, Flow's orders, exactly so
// many slots a rank, receives posted before a message may go, messages of a
// connection that arrive in any order, and user memory that is overwritten when
// a copy arrives, be it too early or not. It counts the messages besides.
#ifndef RINGPIPE_PIPELINE_SYMBOLIC_RUN_H_
#define RINGPIPE_PIPELINE_SYMBOLIC_RUN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "pipeline/plan.h"
#include "pipeline/schedule.h"
#include "pipeline/term_table.h"

namespace ringpipe {

struct RunOptions {
  int slots = 0;  // of each rank
  // What some ranks have more than that, by rank; empty: nobody has.
  std::vector<int> more_slots = {};
  int SlotsOf(int rank) const {
    return slots + (more_slots.empty() ? 0 : more_slots[rank]);
  }
  int depth = 1;  // sub-chunks in a round
  // Sub-chunks of a chunk, from 1.
  std::uint64_t subchunks = 0;
  // Those that each chunk has, where chunks are not alike: none more than that.
  std::vector<std::uint64_t> subchunks_of_chunks = {};
  // Instead, of an all-to-all: those from each rank to each.
  std::vector<std::vector<std::uint64_t>> subchunks_of_pairs = {};
  std::vector<std::uint64_t> SubchunksOfInputs(int rank) const {
    return subchunks_of_pairs.empty() ? subchunks_of_chunks
                                      : subchunks_of_pairs[rank];
  }
  std::vector<std::uint64_t> SubchunksOfOutputs(int rank) const {
    if (subchunks_of_pairs.empty()) {
      return subchunks_of_chunks;
    }
    std::vector<std::uint64_t> outputs;
    for (const std::vector<std::uint64_t>& from : subchunks_of_pairs) {
      outputs.push_back(from[rank]);
    }
    return outputs;
  }

  // What happens next at a rank where several things can. kEager: what began
  // first ends first, and reads and writes memory when it begins. kLazy:
  // whatever can begin does before anything ends, and it reads and writes
  // memory when it ends. kRandom: all of this by `seed`.
  enum class Order { kEager, kLazy, kRandom };
  Order order = Order::kEager;
  std::uint64_t seed = 0;

  // A rule of connections that all of them break, for tests of the checker:
  // what lies at the sender is held until it was read; the first message of a
  // call goes even if its eager message is not ready; data go only into a
  // receive, and to a peer that has said that it makes the same call; only the
  // first message is eager.
  enum class Fault {
    kNone,
    kFreesBeforeRead,
    kNeverAnnounces,
    kSendsWithoutReceive,
    kSendsBeforeAgreed,
    kAlwaysEager,
  };
  Fault fault = Fault::kNone;
};

// User memory of all ranks: before a run their inputs, after it their outputs.
class SymbolicMemory {
 public:
  // Keeps `plans` by reference.
  SymbolicMemory(const std::vector<Plan>& plans, std::uint64_t subchunks)
      : plans_(plans),
        subchunks_(subchunks),
        terms_(2 * plans.size() * plans[0].chunks * subchunks) {}

  // `place`: of one chunk.
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

// A message of data that has arrived. (A call's first messages, which say which
// call it is, are none where they carry no data.)
struct SentMessage {
  int from = 0;
  int to = 0;
  Place source = {};
  bool reduced = false;  // into the receiver's value, else copied
  std::uint64_t subchunk = 0;
  // Its place in the longest chain that ends with it, from 1: in a chain each
  // message can leave only when the one before it has arrived, because it
  // carries what came with it. One that waits for an earlier message of its
  // connection leaves together with that one at the earliest.
  int chain = 1;
};

// Of all ranks.
struct MessageCounts {
  int longest_chain = 0;
  int sent_by_busiest = 0;
};
MessageCounts CountMessages(std::span<const SentMessage> messages, int ranks);

struct RunResult {
  // A hash of every message as an expression of inputs, in the order of its
  // connection; the checker adds every output. Equal for schedules that compute
  // the same from the same in the same way.
  std::uint64_t data_flow = 0;
  std::vector<SentMessage> messages;  // as they have arrived
};

// Drives one Flow a rank as the executor would, in an order of its choice,
// until nothing can happen any more. kInternal where that is before the end, or
// kResourceExhausted where a rank then lacks a slot.
Result<RunResult> RunSymbolically(const std::vector<Plan>& plans,
                                  const RunOptions& options, TermTable& terms,
                                  SymbolicMemory& memory);

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_SYMBOLIC_RUN_H_
