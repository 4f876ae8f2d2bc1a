#ifndef RINGPIPE_BASE_SIGNALS_BLOCKED_H_
#define RINGPIPE_BASE_SIGNALS_BLOCKED_H_

#include <csignal>
#include <initializer_list>

namespace ringpipe {

// While it lives, threads that this one starts get no signals: those are the
// application's. (A thread begins with its creator's mask.) Except the signals
// of a thread's own fault: where those are blocked the kernel ends the process
// without asking the application's handler.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) {
      sigdelset(&blocked, fault);
    }
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_SIGNALS_BLOCKED_H_
