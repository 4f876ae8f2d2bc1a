#include "engine/exit_notice.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <thread>

#include "gtest/gtest.h"

namespace ringpipe {
namespace {

// Of a child that runs `then`; -1 where a signal has ended it, as the alarm
// does where it hangs.
template <typename Then>
int ExitStatusOfChild(Then then) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    then();
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ExitNoticeTest, IsGivenByAProcessThatExits) {
  EXPECT_EQ(ExitStatusOfChild([] {
              const ExitNotice notice([] { _exit(7); });
              exit(0);
            }),
            7);
}

TEST(ExitNoticeTest, IsNotGivenOnceItIsGone) {
  EXPECT_EQ(ExitStatusOfChild([] {
              std::make_unique<ExitNotice>([] { _exit(7); }).reset();
              exit(0);
            }),
            0);
}

TEST(ExitNoticeTest, IsNotGivenByAChild) {
  const ExitNotice notice([] { _exit(7); });
  EXPECT_EQ(ExitStatusOfChild([] { exit(0); }), 0);
}

TEST(ExitNoticeTest, EachOfSeveralIsGiven) {
  EXPECT_EQ(ExitStatusOfChild([] {
              static int given = 0;
              const ExitNotice first([] { _exit(given); });
              auto second = std::make_unique<ExitNotice>([] { given += 10; });
              auto third = std::make_unique<ExitNotice>([] { given += 2; });
              auto fourth = std::make_unique<ExitNotice>([] { given += 1; });
              second.reset();
              exit(0);
            }),
            3);
}

TEST(ExitNoticeTest, AChildsOwnIsGivenAndTheParentsMayEndThere) {
  auto of_parent = std::make_unique<ExitNotice>([] { _exit(7); });
  const ExitNotice other([] { _exit(8); });
  EXPECT_EQ(ExitStatusOfChild([&] {
              const ExitNotice own([] { _exit(3); });
              of_parent.reset();
              exit(0);
            }),
            3);
}

// A child that is born while another thread has the list.
TEST(ExitNoticeTest, HoldsNoChildUp) {
  EXPECT_EQ(ExitStatusOfChild([] {
              static std::atomic<int> status = -1;
              static std::atomic<bool> has_list = false;
              std::thread([] {
                while (!has_list) {
                  sched_yield();
                }
                status = ExitStatusOfChild([] {
                  const ExitNotice notice([] {});
                  _exit(5);
                });
              }).detach();
              const ExitNotice notice([] {
                has_list = true;
                while (status == -1) {
                  sched_yield();
                }
                _exit(status);
              });
              exit(0);
            }),
            5);
}

}  // namespace
}  // namespace ringpipe
