#ifndef RINGPIPE_PIPELINE_OPERATION_H_
#define RINGPIPE_PIPELINE_OPERATION_H_

#include <atomic>
#include <cstdint>
#include <span>
#include <string>

#include "base/deadline.h"
#include "cuda/accelerator.h"
#include "memory_pool/registration.h"
#include "pipeline/call_check.h"
#include "pipeline/chunking.h"
#include "pipeline/plan.h"
#include "reduction/data_type.h"

namespace ringpipe {

// User memory that holds the whole message, or those of its chunks that the
// plan touches: `base` is where element 0 of the message is or would be.
struct UserBuffer {
  std::uintptr_t base = 0;
  bool registered = false;
  RailKeys lkeys = {};  // where registered
  bool shared = false;  // with the ranks of this host
  // As much of it as there is, where it is shared though it is private.
  std::span<const std::byte> reached = {};
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
  int depth = 1;
  // Slots are written past the caches.
  bool streams_in = false;
  // The output is more than the caches hold, and no longer in them.
  bool streams_out = false;
  Deadline deadline = Deadline::Infinite();
  // The earliest deadline of this call and of those that wait for it to end;
  // changes as these come. May be null.
  const std::atomic<Clock::time_point>* earliest_deadline = nullptr;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_OPERATION_H_
