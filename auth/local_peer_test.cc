#include "auth/local_peer.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "auth/confined_process.h"
#include "gtest/gtest.h"

namespace ringpipe {
namespace {

// As the kernel names a process of a PID namespace that is not below ours.
constexpr pid_t kNotVisible = 0;

StatusCode Check(pid_t pid, uid_t uid) {
  return CheckLocalProcess({pid, uid, getegid()}).code();
}

TEST(LocalPeerTest, TrustsThisUsersProcessesAlone) {
  EXPECT_EQ(Check(getpid(), geteuid()), StatusCode::kOk);
  EXPECT_EQ(Check(getpid(), geteuid() + 1), StatusCode::kPermissionDenied);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pause();
  }
  EXPECT_EQ(Check(child, geteuid()), StatusCode::kOk);
  EXPECT_EQ(Check(child, geteuid() + 1), StatusCode::kPermissionDenied);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(Check(child, geteuid()), StatusCode::kPermissionDenied)
      << "nobody has that number any more";
}

// Root is a user like any other.
TEST(LocalPeerTest, DoesNotTrustAnotherUserAsRoot) {
  EXPECT_EQ(Check(1, geteuid() == 0 ? 65534 : 0),
            StatusCode::kPermissionDenied);
}

TEST(LocalPeerTest, DoesNotTrustWhomItCannotSeeFromAUserNamespaceOfItsOwn) {
  const pid_t child = ForkIntoUserNamespace();
  if (child == 0) {
    _exit(Check(kNotVisible, geteuid()) == StatusCode::kPermissionDenied ? 0
                                                                         : 1);
  }
  if (child < 0) {
    return SkipWithoutUserNamespaces();
  }
  int status = -1;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(LocalPeerTest, NamesTheFolderInWhichProcessesAreNotShown) {
  const ucred parent = {getppid(), geteuid(), getegid()};
  const Status status = CheckLocalProcess(parent, "/nowhere");
  EXPECT_EQ(status.code(), StatusCode::kPermissionDenied);
  EXPECT_TRUE(status.message().starts_with("/nowhere is not mounted, "))
      << status.message();
}

// What is missing, and not that everybody is in another user namespace.
TEST(LocalPeerTest, NamesProcWhereItIsNotMounted) {
  const pid_t child = ForkIntoUserNamespace();
  if (child == 0) {
    if (!HideProc()) {
      _exit(2);
    }
    const Status status = CheckLocalProcess({getppid(), geteuid(), getegid()});
    const bool named = status.code() == StatusCode::kPermissionDenied &&
                       status.message().starts_with("/proc is not mounted, ");
    _exit(named ? 0 : 1);
  }
  if (child < 0) {
    return SkipWithoutUserNamespaces();
  }
  int status = -1;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace ringpipe
