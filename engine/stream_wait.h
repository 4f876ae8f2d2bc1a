#ifndef RINGPIPE_ENGINE_STREAM_WAIT_H_
#define RINGPIPE_ENGINE_STREAM_WAIT_H_

#include "base/status.h"
#include "cuda/accelerator.h"
#include "engine/planner.h"
#include "pipeline/abort_signal.h"

namespace ringpipe {

// Before a call: waits on the host until its caller's stream has passed `mark`.
// No lane of the device waits for it, so that streams which share a queue of
// the device cannot wait for each other in a circle.
//
// Sleeps for 50 us, doubling to 1 ms. Ends early, with the reason, where the
// call is aborted, at the deadline of `timing` (kTimeout), and where the
// caller's function ends the call (base/while_waiting.h).
Status AwaitStream(StreamMark& mark, const AbortSignal& abort, int rank,
                   const Timing& timing);

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_STREAM_WAIT_H_
