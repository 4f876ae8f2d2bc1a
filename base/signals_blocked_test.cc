#include "base/signals_blocked.h"

#include <thread>

#include "gtest/gtest.h"

namespace ringpipe {
namespace {

bool IsBlocked(int signal) {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return sigismember(&mask, signal) == 1;
}

TEST(SignalsBlockedTest, AThreadStartedMeanwhileTakesNoneButThoseOfItsFaults) {
  std::thread thread;
  {
    const SignalsBlocked blocked;
    thread = std::thread([] {
      for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGCHLD, SIGPIPE}) {
        EXPECT_TRUE(IsBlocked(signal)) << signal;
      }
      for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
        EXPECT_FALSE(IsBlocked(fault)) << fault;
      }
    });
  }
  EXPECT_FALSE(IsBlocked(SIGTERM)) << "of this thread, afterwards";
  thread.join();
}

}  // namespace
}  // namespace ringpipe
