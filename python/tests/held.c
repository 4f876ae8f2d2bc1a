/* In place of the library: calls that fail, and whose memory a device may still
 * write. LD_PRELOAD puts it before the library. */
#include "engine/ringpipe.h"

ringpipe_status ringpipe_run(ringpipe_communicator* communicator,
                             const ringpipe_call* call) {
  (void)communicator;
  (void)call;
  return RINGPIPE_MEMORY_HELD;
}

ringpipe_status ringpipe_start(ringpipe_communicator* communicator,
                               const ringpipe_call* call,
                               ringpipe_request** request) {
  static int one;
  (void)communicator;
  *request = (ringpipe_request*)&one;
  call->ended(RINGPIPE_MEMORY_HELD, call->ended_context);
  return RINGPIPE_OK;
}

ringpipe_status ringpipe_wait(ringpipe_request* request, int64_t timeout_ms) {
  (void)request;
  (void)timeout_ms;
  return RINGPIPE_MEMORY_HELD;
}

ringpipe_status ringpipe_test(ringpipe_request* request, int* ended) {
  (void)request;
  *ended = 1;
  return RINGPIPE_MEMORY_HELD;
}

void ringpipe_request_free(ringpipe_request* request) { (void)request; }
