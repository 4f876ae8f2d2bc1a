// How a run ends by a signal: what was measured is saved first, and the process
// then dies of that signal, so that a shell's loop ends with it.
#ifndef RINGPIPE_BENCH_INTERRUPTION_H_
#define RINGPIPE_BENCH_INTERRUPTION_H_

#include <signal.h>

#include <functional>
#include <mutex>
#include <string>
#include <thread>

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
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // From now on a signal does not end the process at once: `on_signal(signal)`
  // is called, once, in the watch's thread, and is to make the main thread end
  // its work and call Stop. Where that takes more than 10 s, the process dies
  // of the signal all the same.
  void Arm(std::function<void(int)> on_signal);

  // Readable from the first signal on; -1 where the system gave none.
  int fd() const { return taken_fd_; }

  // Ends the watch. Returns the signal that came since Arm, or 0; a signal that
  // came before Arm ends the process instead. After 0 signals have their former
  // action again; after a signal further ones wait, so that it can be answered.
  int Stop();

 private:
  void Watch();
  void Take(int signal);

  sigset_t signals_;
  int signal_fd_ = -1;
  int stop_fd_ = -1;
  int taken_fd_ = -1;
  std::mutex mutex_;  // guards on_signal_ and taken_
  std::function<void(int)> on_signal_;
  int taken_ = 0;
  std::thread thread_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_INTERRUPTION_H_
