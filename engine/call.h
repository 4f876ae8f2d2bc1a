// A collective call as one value: what Communicator::Run and Start take.
#ifndef RINGPIPE_ENGINE_CALL_H_
#define RINGPIPE_ENGINE_CALL_H_

#include <chrono>
#include <cstddef>
#include <optional>

#include "pipeline/collective.h"
#include "reduction/data_type.h"

namespace ringpipe {

// How long one call may take, counted from when it is made, so waiting for
// earlier calls counts too. Negative: no limit. Not given: RINGPIPE_TIMEOUT_MS.
using Timeout = std::optional<std::chrono::milliseconds>;

// Of a send-receive: whom a rank sends to, and whom it receives from; never
// itself.
struct Partners {
  static constexpr int kNone = -1;
  int to = kNone;
  int from = kNone;

  bool operator==(const Partners&) const = default;
};

// Which buffers a collective reads and writes on which rank, and how much of
// the message each of them holds, says its row in collective.h. Every rank of a
// communicator gives the same collective, count, type, op and root.
struct Call {
  Collective collective = Collective::kBarrier;
  // Not read where the rank gives nothing, not written where it gets nothing;
  // may be null there.
  const void* send = nullptr;
  void* receive = nullptr;
  // Elements of the message; where its parts belong to ranks, of one part.
  std::size_t count = 0;
  DataType type = {};  // has to be set, but for a barrier
  // Where the collective has them; not read elsewhere.
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  Timeout timeout = {};
  Partners partners = {};

  bool operator==(const Call&) const = default;
};

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_CALL_H_
