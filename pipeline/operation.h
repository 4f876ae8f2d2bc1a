#ifndef RINGPIPE_PIPELINE_OPERATION_H_
#define RINGPIPE_PIPELINE_OPERATION_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "cuda/accelerator.h"
#include "pipeline/call_check.h"
#include "pipeline/chunking.h"
#include "pipeline/memory.h"
#include "pipeline/piece_list.h"
#include "pipeline/plan.h"
#include "reduction/data_type.h"

namespace ringpipe {

// User memory that holds the whole message, or those of its chunks that the
// plan touches: `base` is where element 0 of the message is or would be.
struct UserBuffer {
  std::uintptr_t base = 0;
  const PieceList* list = nullptr;                    // instead of `base`
  bool on_device = false;                             // unless it is a list
  std::array<Reached, kMostTransports> reached = {};  // by transport
};

// Where a step of a short call (short_run.h) reads and writes.
struct ShortStep {
  struct Location {
    int holder = -1;  // the step whose value it is in; -1: in user memory
    bool in_output = false;
    std::uint64_t offset = 0;
  };
  std::uint32_t bytes = 0;
  Location source, operand, target;
};

// One collective call on one rank, ready to run.
struct Operation {
  const Plan* plan = nullptr;
  std::string (*name)(const Digest&) = nullptr;  // in words, for messages
  Digest digest;
  UserBuffer input;
  UserBuffer output;
  Accelerator* host = nullptr;
  Accelerator* device = nullptr;  // null where all buffers are host memory
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  // What this rank's input is multiplied by where the plan says so
  // (Plan::scales_input), and the result; of floating-point types.
  double prescale = 1;
  double postscale = 1;
  Chunking chunking;
  // Of an all-to-all whose pairs have lengths of their own: that of the output,
  // and the one above is the input's.
  std::optional<Chunking> output_chunking;
  // Where chunks have given lengths: how many sub-chunks each has.
  std::vector<std::uint64_t> subchunks_of_inputs;
  std::vector<std::uint64_t> subchunks_of_outputs;
  // No message is longer; 0: any may fill a long slot.
  std::uint32_t message_bytes = 0;
  int depth = 1;
  // The output is more than the caches hold, and no longer in them.
  bool copies_out_non_temporal = false;
  Deadline deadline = Deadline::Infinite();
  // The earliest deadline of this call and of those that wait for it to end;
  // changes as these come. May be null.
  const std::atomic<Clock::time_point>* earliest_deadline = nullptr;
  // By ShortRun::Measure, once for all such calls; empty: it is not short.
  std::vector<ShortStep> short_steps;

  const Chunking& ChunkingOf(Place place) const {
    return place.buffer == Place::Buffer::kOutput && output_chunking.has_value()
               ? *output_chunking
               : chunking;
  }
  std::uint64_t subchunks() const {
    return std::max(chunking.subchunks(), output_chunking.has_value()
                                              ? output_chunking->subchunks()
                                              : 0);
  }
  // One sub-chunk of the place.
  std::uint32_t BytesOf(Place place, std::uint64_t subchunk) const {
    return static_cast<std::uint32_t>(
        ChunkingOf(place).Count(place.chunk % plan->chunks, place.count,
                                subchunk) *
        SizeOf(type));
  }
  // Where the piece begins in the value of its step.
  std::uint32_t OffsetOf(const Step::Piece& piece,
                         std::uint64_t subchunk) const {
    Place before = plan->steps[piece.step].transfer.target;
    before.count =
        (piece.place.chunk - before.chunk + plan->chunks) % plan->chunks;
    return before.count == 0 ? 0 : BytesOf(before, subchunk);
  }
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_OPERATION_H_
