#include "base/tcp_timeout.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

namespace ringpipe {
namespace {

// Probes without an answer. The first is sent after one interval of silence,
// and the connection fails an interval after the last.
constexpr int kProbes = 2;

template <typename T>
void SetOption(int fd, int level, int name, const T& value) {
  // Each is an improvement only: a kernel without it does as it can.
  (void)setsockopt(fd, level, name, &value, sizeof(value));
}

}  // namespace

void ProbeIdleConnection(int fd, std::chrono::milliseconds timeout) {
  const int interval_s = std::max(
      1, static_cast<int>(
             std::chrono::duration_cast<std::chrono::seconds>(timeout).count() /
             (kProbes + 1)));
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, interval_s);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval_s);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
}

void LimitUnacknowledged(int fd, std::chrono::milliseconds timeout) {
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT,
            static_cast<unsigned>(timeout.count()));
}

std::chrono::milliseconds UnacknowledgedFor(int fd) {
  tcp_info info = {};
  socklen_t bytes = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 ||
      info.tcpi_unacked == 0 || info.tcpi_retransmits == 0) {
    return std::chrono::milliseconds(0);
  }
  return std::chrono::milliseconds(info.tcpi_last_ack_recv);
}

}  // namespace ringpipe
