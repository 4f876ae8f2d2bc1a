#include "base/log.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace ringpipe {
namespace {

// A line that has no room is lost; the next that has says how many were.
std::atomic<int> lost_lines = 0;

// Not longer than what a pipe takes whole or not at all, so that the lines of
// several processes do not mix.
std::string Cut(std::string line) {
  constexpr std::string_view kMore = "...";
  if (line.size() >= PIPE_BUF) {
    line.resize(PIPE_BUF - kMore.size() - 1);
    line += kMore;
  }
  return line + '\n';
}

// write(), and no SIGPIPE where the last reader has gone: that would end the
// application.
ssize_t WriteWithoutSignal(int fd, const std::string& text) {
  sigset_t broken_pipe, before, pending;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &broken_pipe, &before);
  sigpending(&pending);
  const ssize_t written = write(fd, text.data(), text.size());
  if (written < 0 && errno == EPIPE && sigismember(&pending, SIGPIPE) == 0) {
    const timespec at_once = {};
    sigtimedwait(&broken_pipe, nullptr, &at_once);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return written;
}

// A write that does not wait for a reader, whatever is open there. The flags of
// standard error are not changed: other processes share them.
bool WriteWithoutWaiting(const std::string& text) {
  struct stat file {};
  if (fstat(STDERR_FILENO, &file) != 0) {
    return true;  // closed: nobody wants to know
  }
  const auto bytes = static_cast<ssize_t>(text.size());
  if (S_ISSOCK(file.st_mode)) {
    return send(STDERR_FILENO, text.data(), text.size(),
                MSG_DONTWAIT | MSG_NOSIGNAL) == bytes;
  }
  if (!S_ISFIFO(file.st_mode) && !S_ISCHR(file.st_mode)) {
    return write(STDERR_FILENO, text.data(), text.size()) == bytes;
  }
  pollfd room = {STDERR_FILENO, POLLOUT, 0};
  if (poll(&room, 1, 0) != 1 || (room.revents & POLLERR) != 0 ||
      (room.revents & POLLOUT) == 0) {
    return false;  // full, or nobody is left to read it
  }
  // The same pipe or terminal with flags of its own, since another process may
  // fill it now. Where it may not be opened anew, that is left to chance.
  const int own =
      open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  const bool written =
      WriteWithoutSignal(own >= 0 ? own : STDERR_FILENO, text) == bytes;
  if (own >= 0) {
    close(own);
  }
  return written;
}

void WriteToStderr(const std::string& line) {
  int lost = lost_lines.exchange(0);
  if (lost > 0 && WriteWithoutWaiting("ringpipe: " + std::to_string(lost) +
                                      " lines were lost: nobody read them\n")) {
    lost = 0;
  }
  if (lost > 0 || !WriteWithoutWaiting(Cut(line))) {
    lost_lines += lost + 1;
  }
}

}  // namespace

const char* LogLevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kError:
      return "error";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kDebug:
      return "debug";
  }
  return "unknown";
}

Logger::Logger(LogLevel level, std::string prefix)
    : level_(level), prefix_(std::move(prefix)) {}

Logger::Logger(LogLevel level, LogCallback callback, std::string prefix)
    : level_(level), prefix_(std::move(prefix)) {
  // Copies of this logger share the mutex, so that calls do not overlap.
  callback_ = [mutex = std::make_shared<std::mutex>(),
               callback = std::move(callback)](LogLevel at,
                                               std::string_view line) {
    const std::lock_guard<std::mutex> lock(*mutex);
    callback(at, line);
  };
}

void Logger::Log(LogLevel level, std::string_view line) const {
  if (!enabled(level)) {
    return;
  }
  std::string text = prefix_.empty() ? "" : "[" + prefix_ + "] ";
  if (callback_) {
    text.append(line);
    callback_(level, text);
    return;
  }
  text = "ringpipe" + text + (text.empty() ? " " : "") + LogLevelName(level) +
         ": ";
  text.append(line);
  WriteToStderr(text);
}

}  // namespace ringpipe
