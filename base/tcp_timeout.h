// When the host at the other end of a TCP connection counts as dead.
#ifndef RINGPIPE_BASE_TCP_TIMEOUT_H_
#define RINGPIPE_BASE_TCP_TIMEOUT_H_

#include <chrono>

namespace ringpipe {

// While nothing is on its way, the kernel asks the other host whether it is
// there; the connection fails with ETIMEDOUT when it has not answered for
// `timeout`, which counts in seconds. A host answers for a process that is
// stopped.
void ProbeIdleConnection(int fd, std::chrono::milliseconds timeout);

// The connection fails with ETIMEDOUT when something that was sent has not been
// acknowledged for `timeout`, or when the peer's buffers have been full for so
// long, though its host answers: for connections on which little is sent.
void LimitUnacknowledged(int fd, std::chrono::milliseconds timeout);

// For how long the other host has acknowledged nothing, though something was
// sent to it, and sent again; zero: nothing waits for that, because all was
// acknowledged, or because the peer's buffers are full. For a connection that
// is probed when it is idle: else the time before the sending counts as well.
std::chrono::milliseconds UnacknowledgedFor(int fd);

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_TCP_TIMEOUT_H_
