// For tests: a forked process to talk to. Fork before opening a device: threads
// do not survive a fork.
#ifndef RINGPIPE_BASE_PEER_PROCESS_H_
#define RINGPIPE_BASE_PEER_PROCESS_H_

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <utility>

namespace ringpipe {

// Carries plain values between the two processes. A value that does not come
// within 20 s ends the process.
class ValuePipe {
 public:
  // Closes it. Children of fork() have it, too.
  explicit ValuePipe(int socket) : socket_(socket) {}
  ~ValuePipe() { close(socket_); }
  ValuePipe(const ValuePipe&) = delete;
  ValuePipe& operator=(const ValuePipe&) = delete;

  template <typename T>
  void Put(const T& value) {
    if (send(socket_, &value, sizeof value, MSG_NOSIGNAL) !=
        static_cast<ssize_t>(sizeof value)) {
      abort();
    }
  }

  template <typename T>
  T Get() {
    T value;
    pollfd readable = {socket_, POLLIN, 0};
    if (poll(&readable, 1, 20'000) != 1 ||
        recv(socket_, &value, sizeof value, 0) !=
            static_cast<ssize_t>(sizeof value)) {
      abort();
    }
    return value;
  }

 private:
  const int socket_;
};

class PeerProcess {
 public:
  // Runs `body` in a child process, whose exit status says what it returned.
  explicit PeerProcess(const std::function<bool(ValuePipe&)>& body)
      : PeerProcess(body, MakeSockets()) {}
  ~PeerProcess() {
    if (pid_ > 0) {
      Kill();
    }
  }
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  ValuePipe& pipe() { return pipe_; }
  pid_t pid() const { return pid_; }

  // Whether the body returned true.
  bool Join() {
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  void Kill() {
    kill(pid_, SIGKILL);
    Join();
  }

 private:
  using Sockets = std::pair<int, int>;  // the child has its own, too

  static Sockets MakeSockets() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
      abort();
    }
    return {ends[0], ends[1]};
  }

  PeerProcess(const std::function<bool(ValuePipe&)>& body, Sockets sockets)
      : pid_(fork()), pipe_(pid_ == 0 ? sockets.second : sockets.first) {
    close(pid_ == 0 ? sockets.first : sockets.second);
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      _exit(body(pipe_) ? 0 : 1);
    }
  }

  pid_t pid_;
  ValuePipe pipe_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_PEER_PROCESS_H_
