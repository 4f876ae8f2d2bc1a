#include "bench/text_output.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace ringpipe {

Status TextOutput::Write(std::string_view text) {
  while (status_.ok() && !text.empty()) {
    status_ = WritePart(text);
  }
  return status_;
}

// A pipe that poll calls writable takes PIPE_BUF bytes without blocking.
Status TextOutput::WritePart(std::string_view& text) {
  pollfd fds[] = {{fd_, POLLOUT, 0}, {stop_fd_, POLLIN, 0}};
  if (poll(fds, 2, -1) < 0) {
    return errno == EINTR ? Status()
                          : ErrnoStatus(StatusCode::kInternal, "poll", errno);
  }
  if ((fds[1].revents & POLLIN) != 0) {
    return {StatusCode::kAborted, "interrupted"};
  }
  const ssize_t written =
      write(fd_, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
  if (written < 0 && errno != EINTR && errno != EAGAIN) {
    reader_left_ = errno == EPIPE;
    return ErrnoStatus(StatusCode::kUnavailable, "cannot write to " + name_,
                       errno);
  }
  text.remove_prefix(written < 0 ? 0 : static_cast<std::size_t>(written));
  return {};
}

void OccupyStandardDescriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) == -1) {
      // open() takes the lowest free descriptor, which is `fd`. It is opened
      // for the other direction, so that using it fails.
      (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    }
  }
}

}  // namespace ringpipe
