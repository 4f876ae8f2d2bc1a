// A collective call as one value: what Communicator::Run and Start take.
#ifndef RINGPIPE_ENGINE_CALL_H_
#define RINGPIPE_ENGINE_CALL_H_

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>

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

// A piece of a list of buffers: so many elements.
struct Buffer {
  void* data = nullptr;
  std::size_t count = 0;
};

// Some of a caller's, which a call copies when it starts. Equal where they are
// the same, not alike.
template <typename T>
class Listed : public std::span<const T> {
 public:
  using std::span<const T>::span;

  bool operator==(const Listed& other) const {
    return this->data() == other.data() && this->size() == other.size();
  }
};

// Memory that does not lie together, as gradients of many layers: its pieces
// have the elements of one buffer, one after the other. They are the caller's
// until the call ends.
using BufferList = Listed<Buffer>;
// How many elements a part has, by rank.
using Counts = Listed<std::size_t>;

// Which buffers a collective reads and writes on which rank, and how much of
// the message each of them holds, says its row in collective.h. Every rank of a
// communicator gives the same collective, count or counts, type, op and root.
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
  // Instead of `send`, or of `receive`: as many elements, in pieces, which need
  // not be the same on all ranks.
  BufferList send_list = {};
  BufferList receive_list = {};
  // What the rank's input is multiplied by before it is reduced, and the result
  // after that; of floating-point types, where the collective reduces. The
  // first may be each rank's own, the second is the same on all.
  double prescale = 1;
  double postscale = 1;
  // Instead of `count`, where parts belong to one rank each and are not all
  // equally long; 0 among them are allowed. A buffer with all parts has one
  // after the other. Of an all-to-all, what this rank has for each, and what it
  // gets from each: every pair of ranks gives the same.
  Counts counts = {};
  Counts receive_counts = {};
  // A CUDA stream: the call begins when the device has done what the stream was
  // given before the call, and reads and writes no buffer earlier. Nothing is
  // put into the stream: whoever reads the result waits for the call. nullptr
  // or 1 (CU_STREAM_LEGACY): the legacy default one of the device whose memory
  // the buffers are, whichever is current on this thread; if all are in host
  // memory, and for 2 (CU_STREAM_PER_THREAD), of the current device, which has
  // to be the communicator's.
  std::optional<void*> stream = {};

  bool operator==(const Call&) const = default;
};

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_CALL_H_
