#include "pipeline/abort_signal.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>

#include "base/deadline.h"

namespace ringpipe {

Result<std::unique_ptr<AbortSignal>> AbortSignal::Create() {
  FileDescriptor fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) {
    return ErrnoStatus(StatusCode::kResourceExhausted, "eventfd", errno);
  }
  return std::unique_ptr<AbortSignal>(new AbortSignal(std::move(fd)));
}

Status AbortSignal::Raise(const Status& reason) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (reason_.ok()) {
    reason_ = reason;
    raised_.store(true, std::memory_order_release);
    const std::uint64_t one = 1;
    // Cannot fail: the counter is far from full.
    [[maybe_unused]] const ssize_t written = write(fd_.get(), &one, sizeof one);
  }
  return reason_;
}

void AbortSignal::AwaitReason() const {
  const Deadline end = Deadline::After(std::chrono::milliseconds(300));
  pollfd raised = {fd_.get(), POLLIN, 0};
  while (poll(&raised, 1, end.PollTimeoutMs(1000)) < 0 && errno == EINTR) {
  }
}

Status AbortSignal::reason() const {
  if (!raised()) {
    return Status::Ok();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  return reason_;
}

}  // namespace ringpipe
