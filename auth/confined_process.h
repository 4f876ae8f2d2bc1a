// For tests: a child process in a user namespace of its own, where it has all
// rights.
#ifndef RINGPIPE_AUTH_CONFINED_PROCESS_H_
#define RINGPIPE_AUTH_CONFINED_PROCESS_H_

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

#include "gtest/gtest.h"

namespace ringpipe {

// As fork; -1 also where the kernel lets nobody make a user namespace here. Not
// fork and unshare: a sanitizer starts a thread in between, and unshare is for
// processes of one thread.
inline pid_t ForkIntoUserNamespace() {
  const long child = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, nullptr,
                             nullptr, nullptr, nullptr);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
  }
  return static_cast<pid_t>(child);
}

// From now on this process, which is in a user namespace of its own, sees no
// /proc. False where the kernel refuses that.
inline bool HideProc() {
  return unshare(CLONE_NEWNS) == 0 &&
         mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("none", "/proc", "tmpfs", 0, nullptr) == 0;
}

// Ends a test that cannot be run; in CI it has to be.
inline void SkipWithoutUserNamespaces() {
  constexpr const char* kWhy =
      "this kernel lets nobody make a user namespace here";
  ASSERT_EQ(getenv("CI"), nullptr) << kWhy;
  GTEST_SKIP() << kWhy;
}

}  // namespace ringpipe

#endif  // RINGPIPE_AUTH_CONFINED_PROCESS_H_
