// How a run ends by a signal: what was measured is saved first, and the process
// then dies of that signal, so that a shell's loop ends with it.
#ifndef RINGPIPE_BENCH_INTERRUPTION_H_
#define RINGPIPE_BENCH_INTERRUPTION_H_

#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/deadline.h"

namespace ringpipe {

// SIGINT, SIGTERM and SIGHUP, but for those that this process was told to
// ignore when it was started (nohup; a shell's background jobs).
sigset_t EndingSignals();

// "SIGINT".
std::string SignalName(int signal);

// Ends this process by `signal`, with the signal's default action: so the
// parent learns how it ended. Runs no destructors.
[[noreturn]] void DieOf(int signal);

// Blocks EndingSignals in this thread and those that it starts later, and takes
// them in a thread of its own. Create it before any other thread. One at a
// time; the thread that makes it calls its functions.
//
// From the first signal on this process has `saving_takes_at_most` to end by
// itself; then it dies of that signal. A further signal makes it die at once,
// unless it comes within a second of the first: a launcher passes on what a
// terminal has sent to all ranks already.
class SignalWatch {
 public:
  explicit SignalWatch(std::chrono::milliseconds saving_takes_at_most =
                           std::chrono::seconds(10));
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // From now on a signal does not end the process at once: `on_signal(signal)`
  // is called, once, in the watch's thread, and is to make the main thread end
  // its work and call Stop.
  void Arm(std::function<void(int)> on_signal);

  // Readable from the first signal on; -1 where the system gave none.
  int fd() const { return taken_fd_; }

  // Returns the signal that came since Arm, or 0; a signal that came before Arm
  // ends the process instead. After 0 the watch is over and signals have their
  // former action again; after a signal the watch goes on, so that what is done
  // to answer it has an end.
  int Stop();

 private:
  void Watch();
  void Take(int signal);
  bool AnswerStop();

  const std::chrono::milliseconds saving_takes_at_most_;
  sigset_t signals_;
  int signal_fd_ = -1;
  int stop_fd_ = -1;
  int taken_fd_ = -1;
  std::optional<Clock::time_point> taken_at_;  // the watch's thread's

  std::mutex mutex_;  // guards the rest
  std::condition_variable answered_;
  std::function<void(int)> on_signal_;
  int taken_ = 0;
  bool stop_seen_ = false;  // all signals from before Stop were looked at
  bool destroyed_ = false;
  std::thread thread_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_INTERRUPTION_H_
