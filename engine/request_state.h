#ifndef RINGPIPE_ENGINE_REQUEST_STATE_H_
#define RINGPIPE_ENGINE_REQUEST_STATE_H_

#include <condition_variable>
#include <mutex>
#include <optional>

#include "base/status.h"
#include "engine/communicator.h"

namespace ringpipe {

// The end of an asynchronous call, shared between who waits and who runs it.
// Thread-safe.
struct Request::State {
  mutable std::mutex mutex;
  std::condition_variable ended;
  std::optional<Status> status;  // guarded by mutex

  void End(const Status& result) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      status = result;
    }
    ended.notify_all();
  }
};

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_REQUEST_STATE_H_
