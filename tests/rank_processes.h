// Ranks as processes: a test program starts itself again, once for each rank,
// to play a named role.
#ifndef RINGPIPE_TESTS_RANK_PROCESSES_H_
#define RINGPIPE_TESTS_RANK_PROCESSES_H_

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/ways.h"

namespace ringpipe::testing {

// One rank's process. It ends at the latest with the object (SIGKILL), or with
// the test's own process.
class RankProcess {
 public:
  // Starts this program to play `role` as `rank` of `size` in `job`, whose
  // ranks are connected by `way`. `variables` ("NAME=value") are in its
  // environment, and win.
  RankProcess(Way way, const std::string& role, int rank, int size,
              const std::string& job,
              const std::vector<std::string>& variables = {});
  ~RankProcess();
  RankProcess(RankProcess&& other) noexcept;
  RankProcess& operator=(RankProcess&&) = delete;

  // The next line that the rank printed; "" at its end or after `timeout`.
  std::string ReadLine(std::chrono::milliseconds timeout);
  // Lets a rank that waits in AwaitGo() go on.
  void Go();
  void Signal(int signal);
  // The exit status as of waitpid, once the process has ended; -1 if it has not
  // after `timeout`.
  int Wait(std::chrono::milliseconds timeout);
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int output_ = -1;
  int input_ = -1;
  std::string buffer_;
};

// The ranks of one job on this host, from 0.
std::vector<RankProcess> StartRanks(Way way, const std::string& role, int size,
                                    const std::string& job);

// In a rank: blocks until the test calls Go.
void AwaitGo();
// In a rank: a line for the test.
void Print(const std::string& line);

// The roles of a test program, by name.
struct Role {
  const char* name;
  int (*play)(Way way);  // returns the exit status
};

// For main(): plays the role for which the program was started, or runs the
// tests.
int RunRoleOrTests(int argc, char** argv, const std::vector<Role>& roles);

}  // namespace ringpipe::testing

#endif  // RINGPIPE_TESTS_RANK_PROCESSES_H_
