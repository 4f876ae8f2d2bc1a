#include "pipeline/abort_signal.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <utility>

namespace ringpipe {

Result<std::unique_ptr<AbortSignal>> AbortSignal::Create() {
  std::array<int, 2> ends = {};
  if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return ErrnoStatus(StatusCode::kResourceExhausted, "socketpair", errno);
  }
  // Before the memory: where there is none, they are closed.
  FileDescriptor heard(ends[0]);
  FileDescriptor told(ends[1]);
  return std::unique_ptr<AbortSignal>(
      new AbortSignal(std::move(heard), std::move(told)));
}

// By a datagram of no bytes. Where too many wait already, one more is not
// needed.
void AbortSignal::Wake() const {
  static_cast<void>(send(told_.get(), "", 0, MSG_DONTWAIT | MSG_NOSIGNAL));
}

Status AbortSignal::Raise(const Status& reason, std::uint64_t first) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!raised(first)) {
    reason_ = reason;
    first_.store(first, std::memory_order_release);
    Wake();
  }
  return reason_;
}

void AbortSignal::AwaitReason(std::uint64_t call, Deadline deadline) const {
  pollfd readable = {fd(), POLLIN, 0};
  while (!raised(call) && !deadline.expired() && is_intact()) {
    const int ready = poll(&readable, 1, deadline.PollTimeoutMs(1000));
    if (ready < 0 && errno != EINTR) {
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
  if (!raised(call) && recv(fd(), nullptr, 0, MSG_DONTWAIT) >= 0 &&
      raised(call)) {
    Wake();  // it was raised meanwhile
  }
}

}  // namespace ringpipe
