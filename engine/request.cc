#include <chrono>
#include <string>

#include "base/deadline.h"
#include "engine/communicator.h"
#include "engine/request_state.h"

namespace ringpipe {

Status Request::Wait(std::chrono::milliseconds timeout) {
  std::unique_lock<std::mutex> lock(state_->mutex);
  const auto ended = [this] { return state_->status.has_value(); };
  const Deadline deadline = Deadline::After(timeout);
  if (deadline.infinite()) {
    state_->ended.wait(lock, ended);
  } else if (!state_->ended.wait_until(lock, deadline.when(), ended)) {
    return {StatusCode::kTimeout,
            "the call has not ended after " + std::to_string(timeout.count()) +
                " ms of waiting; it runs on, wait for it again"};
  }
  return *state_->status;
}

bool Request::Done() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->status.has_value();
}

}  // namespace ringpipe
