#include "bench/interruption.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace ringpipe {
namespace {

// Signals that come so soon after the first are taken for the same one.
constexpr std::chrono::seconds kSameSignal(1);

void MakeReadable(int event_fd) {
  const std::uint64_t one = 1;
  (void)!write(event_fd, &one, sizeof one);
}

}  // namespace

sigset_t EndingSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action = {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) {
      sigaddset(&signals, signal);
    }
  }
  return signals;
}

std::string SignalName(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? "signal " + std::to_string(signal)
                         : "SIG" + std::string(name);
}

void DieOf(int signal) {
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  sigaction(signal, &action, nullptr);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  raise(signal);
  _exit(128 + signal);  // a signal that ends no process
}

SignalWatch::SignalWatch(std::chrono::milliseconds saving_takes_at_most)
    : saving_takes_at_most_(saving_takes_at_most), signals_(EndingSignals()) {
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  signal_fd_ = signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK);
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  taken_fd_ = eventfd(0, EFD_CLOEXEC);
  if (signal_fd_ < 0 || stop_fd_ < 0 || taken_fd_ < 0) {
    // No descriptors are left: signals do what they did before.
    pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
    return;
  }
  thread_ = std::thread([this] { Watch(); });
}

SignalWatch::~SignalWatch() {
  if (thread_.joinable()) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      destroyed_ = true;
    }
    MakeReadable(stop_fd_);
    thread_.join();
  }
  for (const int fd : {signal_fd_, stop_fd_, taken_fd_}) {
    if (fd >= 0) {
      close(fd);
    }
  }
}

void SignalWatch::Arm(std::function<void(int)> on_signal) {
  const std::lock_guard<std::mutex> lock(mutex_);
  on_signal_ = std::move(on_signal);
}

int SignalWatch::Stop() {
  if (!thread_.joinable()) {
    return 0;
  }
  {
    std::unique_lock<std::mutex> lock(mutex_);
    stop_seen_ = false;
    MakeReadable(stop_fd_);
    answered_.wait(lock, [this] { return stop_seen_; });
    if (taken_ != 0) {
      return taken_;
    }
  }
  thread_.join();
  pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
  return 0;
}

// Both descriptors are looked at before Stop is answered, so that a signal that
// came before Stop was called is never lost.
void SignalWatch::Watch() {
  for (;;) {
    const Deadline deadline =
        taken_at_ ? Deadline::At(*taken_at_ + saving_takes_at_most_)
                  : Deadline::Infinite();
    pollfd fds[] = {{signal_fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
    poll(fds, 2, deadline.infinite() ? -1 : deadline.PollTimeoutMs(60'000));
    if (deadline.expired()) {
      DieOf(taken_);
    }
    signalfd_siginfo info;
    while (read(signal_fd_, &info, sizeof info) == sizeof info) {
      Take(static_cast<int>(info.ssi_signo));
    }
    if ((fds[1].revents & POLLIN) != 0 && !AnswerStop()) {
      return;
    }
  }
}

// Returns whether the watch goes on.
bool SignalWatch::AnswerStop() {
  std::uint64_t count;
  (void)!read(stop_fd_, &count, sizeof count);
  const std::lock_guard<std::mutex> lock(mutex_);
  stop_seen_ = true;
  answered_.notify_one();
  return taken_ != 0 && !destroyed_;
}

void SignalWatch::Take(int signal) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (taken_ != 0) {
    if (Clock::now() - *taken_at_ >= kSameSignal) {
      DieOf(taken_);  // somebody is losing patience
    }
    return;
  }
  if (!on_signal_) {
    DieOf(signal);
  }
  taken_ = signal;
  taken_at_ = Clock::now();
  MakeReadable(taken_fd_);
  on_signal_(signal);
}

}  // namespace ringpipe
