#ifndef RINGPIPE_PIPELINE_OPERATION_H_
#define RINGPIPE_PIPELINE_OPERATION_H_

#include <array>
#include <atomic>
#include <cstdint>
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
  Accelerator* accelerator = nullptr;  // whose memory the buffers are
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  Chunking chunking;
  // Where chunks have given lengths: how many sub-chunks each has.
  std::vector<std::uint64_t> subchunks_of_chunks;
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

  // One sub-chunk of `count` chunks from `chunk`.
  std::uint32_t BytesOf(int chunk, int count, std::uint64_t subchunk) const {
    return static_cast<std::uint32_t>(
        chunking.Count(chunk % plan->chunks, count, subchunk) * SizeOf(type));
  }
  // Where the piece begins in the value of its step.
  std::uint32_t OffsetOf(const Step::Piece& piece,
                         std::uint64_t subchunk) const {
    const int first = plan->steps[piece.step].transfer.target.chunk;
    const int before =
        (piece.place.chunk - first + plan->chunks) % plan->chunks;
    return before == 0 ? 0 : BytesOf(first, before, subchunk);
  }
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_OPERATION_H_
