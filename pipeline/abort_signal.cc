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

Status AbortSignal::Raise(const Status& reason, std::uint64_t first) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!raised(first)) {
    reason_ = reason;
    first_.store(first, std::memory_order_release);
    const std::uint64_t one = 1;
    // Cannot fail: the counter is far from full.
    [[maybe_unused]] const ssize_t written = write(fd_.get(), &one, sizeof one);
  }
  return reason_;
}

void AbortSignal::AwaitReason(std::uint64_t call) const {
  const Deadline end = Deadline::After(std::chrono::milliseconds(300));
  pollfd readable = {fd_.get(), POLLIN, 0};
  while (!raised(call)) {
    const int ready = poll(&readable, 1, end.PollTimeoutMs(1000));
    if (ready == 0 || (ready < 0 && errno != EINTR)) {
      return;
    }
    Rearm(call);
  }
}

Status AbortSignal::reason(std::uint64_t call) const {
  if (!raised(call)) {
    return Status::Ok();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  return reason_;
}

void AbortSignal::Rearm(std::uint64_t call) const {
  std::uint64_t count = 0;
  if (!raised(call) && read(fd_.get(), &count, sizeof count) > 0 &&
      raised(call)) {
    // It was raised meanwhile.
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(fd_.get(), &one, sizeof one);
  }
}

}  // namespace ringpipe
