#include "tests/rank_processes.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "gtest/gtest.h"

namespace ringpipe::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr const char* kRoleVariable = "TEST_ROLE";

std::vector<std::string> EnvironmentFor(Way way, const std::string& role,
                                        int rank, int size,
                                        const std::string& job,
                                        std::vector<std::string> variables) {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "RINGPIPE_", 9) != 0) {
      variables.emplace_back(*entry);
    }
  }
  variables.push_back(std::string(kRoleVariable) + "=" + role);
  variables.push_back("RINGPIPE_RANK=" + std::to_string(rank));
  variables.push_back("RINGPIPE_SIZE=" + std::to_string(size));
  variables.push_back("RINGPIPE_ROOT=unix:@" + job);
  variables.push_back("RINGPIPE_JOB_ID=" + job);
  variables.emplace_back(SharesMemory(way) ? "RINGPIPE_HOST_MEMORY=auto"
                                           : "RINGPIPE_DEVICE=soft");
  if (IsAdversarial(way)) {
    variables.emplace_back("RINGPIPE_SOFT_ADVERSARY=1");
  }
  return variables;
}

}  // namespace

RankProcess::RankProcess(Way way, const std::string& role, int rank, int size,
                         const std::string& job,
                         const std::vector<std::string>& variables) {
  int to_rank[2];
  int from_rank[2];
  if (pipe2(to_rank, O_CLOEXEC) != 0 || pipe2(from_rank, O_CLOEXEC) != 0) {
    ADD_FAILURE() << "pipe2: " << std::strerror(errno);
    return;
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to_rank[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from_rank[1], STDOUT_FILENO);
  std::vector<std::string> all =
      EnvironmentFor(way, role, rank, size, job, variables);
  std::vector<char*> environment;
  for (std::string& variable : all) {
    environment.push_back(variable.data());
  }
  environment.push_back(nullptr);
  char name[] = "rank";
  std::string way_name(Name(way));
  char* arguments[] = {name, way_name.data(), nullptr};
  const int error = posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr,
                                arguments, environment.data());
  posix_spawn_file_actions_destroy(&actions);
  close(to_rank[0]);
  close(from_rank[1]);
  input_ = to_rank[1];
  output_ = from_rank[0];
  if (error != 0) {
    pid_ = -1;
    ADD_FAILURE() << "posix_spawn: " << std::strerror(error);
  }
}

RankProcess::RankProcess(RankProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      output_(std::exchange(other.output_, -1)),
      input_(std::exchange(other.input_, -1)),
      buffer_(std::move(other.buffer_)) {}

RankProcess::~RankProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  for (const int fd : {input_, output_}) {
    if (fd >= 0) {
      close(fd);
    }
  }
}

std::string RankProcess::ReadLine(milliseconds timeout) {
  const auto end = steady_clock::now() + timeout;
  while (buffer_.find('\n') == std::string::npos) {
    const auto left =
        std::chrono::duration_cast<milliseconds>(end - steady_clock::now());
    pollfd fd = {output_, POLLIN, 0};
    if (left.count() <= 0 ||
        poll(&fd, 1, static_cast<int>(left.count())) <= 0) {
      return "";
    }
    char bytes[4096];
    const ssize_t count = read(output_, bytes, sizeof bytes);
    if (count <= 0) {
      return "";
    }
    buffer_.append(bytes, count);
  }
  const std::size_t line_end = buffer_.find('\n');
  std::string line = buffer_.substr(0, line_end);
  buffer_.erase(0, line_end + 1);
  return line;
}

void RankProcess::Go() {
  EXPECT_EQ(write(input_, "\n", 1), 1) << std::strerror(errno);
}

void RankProcess::Signal(int signal) { EXPECT_EQ(kill(pid_, signal), 0); }

int RankProcess::Wait(milliseconds timeout) {
  // The rank's end of the pipe closes when it has ended.
  const auto end = steady_clock::now() + timeout;
  int status = -1;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (steady_clock::now() >= end) {
      return -1;
    }
    poll(nullptr, 0, 2);
  }
  pid_ = -1;
  return status;
}

std::vector<RankProcess> StartRanks(Way way, const std::string& role, int size,
                                    const std::string& job) {
  std::vector<RankProcess> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back(way, role, rank, size, job);
  }
  return ranks;
}

void AwaitGo() {
  char byte = 0;
  if (read(STDIN_FILENO, &byte, 1) != 1) {
    _exit(99);  // the test has gone
  }
}

void Print(const std::string& line) {
  const std::string text = line + "\n";
  if (write(STDOUT_FILENO, text.data(), text.size()) < 0) {
    _exit(98);
  }
}

int RunRoleOrTests(int argc, char** argv, const std::vector<Role>& roles) {
  const char* wanted = std::getenv(kRoleVariable);
  if (wanted == nullptr) {
    ::testing::InitGoogleTest(&argc, argv);
    std::signal(SIGPIPE, SIG_IGN);
    return RUN_ALL_TESTS();
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const Role& role : roles) {
    if (std::strcmp(role.name, wanted) == 0) {
      return role.play(WayNamed(argc > 1 ? argv[1] : ""));
    }
  }
  std::fprintf(stderr, "no role %s\n", wanted);
  return 97;
}

}  // namespace ringpipe::testing
