// RunLocalRanks starts the program that it is in. So this program has two
// roles: without --error-fd it is the test; with it, a rank that does what its
// first argument says.
#include "bench/local_ranks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "auth/confined_process.h"
#include "base/deadline.h"
#include "bench/interruption.h"

namespace ringpipe {
namespace {

constexpr std::chrono::seconds kPatience(20);

// For what is done in less than 2 s where nothing else runs. Less than the
// 12 s that ranks have after a signal.
constexpr std::chrono::seconds kSoon(8);

[[noreturn]] void PauseForever() {
  for (;;) {
    pause();
  }
}

void Say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

// What a rank does; it returns its exit status.
using Role = int (*)(int rank, int error_fd);

int SayEnvironment(int rank, int) {
  std::printf("%d %s %s %s %d\n", rank, std::getenv("RINGPIPE_SIZE"),
              std::getenv("RINGPIPE_ROOT"), std::getenv("RINGPIPE_JOB_ID"),
              static_cast<int>(getsid(0)));
  return 0;
}

int ExitWithTwiceTheRank(int rank, int) { return 2 * rank; }

int Report(int, int error_fd) {
  ReportError(error_fd, -1, {StatusCode::kUnavailable, "no device"});
  return 1;
}

int Rank1IsKilled(int rank, int) {
  if (rank == 1) {
    raise(SIGKILL);
  }
  PauseForever();
}

int Rank1IsKilledOthersIgnoreSigterm(int rank, int error_fd) {
  signal(SIGTERM, SIG_IGN);
  return Rank1IsKilled(rank, error_fd);
}

int Rank1SaysStop(int rank, int error_fd) {
  if (rank == 1) {
    ReportStop(error_fd, SIGPIPE);
    ReportError(error_fd, -1, {StatusCode::kUnavailable, "not printed"});
  }
  PauseForever();
}

// What Ctrl-C does to rank 0 where that hears of it before the launcher.
int SayStopAndSave(int, int error_fd) {
  signal(SIGINT, SIG_IGN);
  ReportStop(error_fd, SIGINT);
  Say("stopped");
  poll(nullptr, 0, 500);  // the time that saving takes
  Say("saved");
  DieOf(SIGINT);
}

int Rank1DiesOfSigint(int rank, int) {
  if (rank == 1) {
    DieOf(SIGINT);
  }
  PauseForever();
}

int Hang(int, int) {
  Say(std::to_string(getpid()));
  PauseForever();
}

int HangAndSayThatSigtermCame(int rank, int error_fd) {
  signal(SIGTERM, [](int) { (void)!write(STDOUT_FILENO, "got it\n", 7); });
  return Hang(rank, error_fd);
}

const std::map<std::string, Role> kRoles = {
    {"environment", SayEnvironment},
    {"exit", ExitWithTwiceTheRank},
    {"report", Report},
    {"die", Rank1IsKilled},
    {"die-stubbornly", Rank1IsKilledOthersIgnoreSigterm},
    {"stop", Rank1SaysStop},
    {"stop-and-save", SayStopAndSave},
    {"interrupted", Rank1DiesOfSigint},
    {"hang", Hang},
    {"hang-stubbornly", HangAndSayThatSigtermCame},
};

// A launcher in a process of its own, and what it and its ranks print.
class Launcher {
 public:
  // The launcher begins with `ignored` ignored, where that is a signal.
  Launcher(int ranks, const std::string& what, int ignored = 0) {
    EXPECT_EQ(pipe2(pipe_, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (ignored != 0) {
        signal(ignored, SIG_IGN);
      }
      dup2(pipe_[1], STDOUT_FILENO);
      dup2(pipe_[1], STDERR_FILENO);
      const auto end = RunLocalRanks(ranks, {"rank", what});
      if (end.ok() && end.value().stopped_by) {
        DieOf(*end.value().stopped_by);
      }
      _exit(end.ok() ? end.value().exit_status : 99);
    }
    close(pipe_[1]);
  }

  ~Launcher() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(pipe_[0]);
  }

  pid_t pid() const { return pid_; }

  // Reads until `lines` lines are there, or to the end, which comes when the
  // launcher and all ranks have ended.
  std::string Read(int lines = -1) {
    const Deadline deadline = Deadline::After(kPatience);
    while (lines < 0 || Lines() < lines) {
      pollfd fd = {pipe_[0], POLLIN, 0};
      if (poll(&fd, 1, deadline.PollTimeoutMs(60'000)) <= 0) {
        ADD_FAILURE() << "nothing more after: " << text_;
        break;
      }
      char bytes[4096];
      const ssize_t count = read(pipe_[0], bytes, sizeof bytes);
      if (count <= 0) {
        break;
      }
      text_.append(bytes, count);
    }
    return text_;
  }

  // The exit status, or 1000 + signal.
  int Wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  int Lines() const {
    return static_cast<int>(std::count(text_.begin(), text_.end(), '\n'));
  }

  int pipe_[2];
  pid_t pid_;
  std::string text_;
};

int Occurrences(const std::string& text, const std::string& part) {
  int count = 0;
  for (auto at = text.find(part); at != text.npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

TEST(LocalRanks, EachRankHasItsPlaceAndAllHaveTheSameJobAndSession) {
  Launcher launcher(3, "environment");
  std::istringstream text(launcher.Read());
  EXPECT_EQ(launcher.Wait(), 0);
  std::set<int> ranks;
  std::set<std::string> shared;
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    int rank;
    std::string rest;
    words >> rank;
    std::getline(words, rest);
    ranks.insert(rank);
    shared.insert(rest);
  }
  EXPECT_EQ(ranks, (std::set<int>{0, 1, 2}));
  ASSERT_EQ(shared.size(), 1u);
  EXPECT_EQ(shared.begin()->find(" 3 unix:@ringpipe-"), 0u);
  EXPECT_NE(shared.begin()->find(" " + std::to_string(getsid(0))),
            std::string::npos);
}

TEST(LocalRanks, TwoJobsHaveDifferentAddresses) {
  Launcher one(1, "environment");
  Launcher other(1, "environment");
  EXPECT_NE(one.Read(), other.Read());
}

TEST(LocalRanks, ExitStatusIsTheWorst) {
  Launcher launcher(4, "exit");
  EXPECT_NE(launcher.Read().find("exit status"), std::string::npos);
  EXPECT_EQ(launcher.Wait(), 6);
}

TEST(LocalRanks, AnErrorOfEveryRankIsPrintedOnce) {
  Launcher launcher(5, "report");
  const std::string text = launcher.Read();
  EXPECT_EQ(Occurrences(text, "no device"), 1) << text;
  EXPECT_EQ(Occurrences(text, "\n"), 1) << text;
  EXPECT_EQ(launcher.Wait(), 1);
}

TEST(LocalRanks, AKilledRankIsNamedAndTheOthersEnd) {
  const auto start = Clock::now();
  Launcher launcher(4, "die");
  const std::string text = launcher.Read();
  EXPECT_LT(Clock::now() - start, kSoon);
  EXPECT_NE(text.find("rank 1 (pid "), std::string::npos) << text;
  EXPECT_NE(text.find("killed by signal 9 (SIGKILL)"), std::string::npos);
  EXPECT_EQ(Occurrences(text, "\n"), 1) << text;
  EXPECT_EQ(launcher.Wait(), 128 + SIGKILL);
}

TEST(LocalRanks, RanksThatIgnoreSigtermEndToo) {
  const auto start = Clock::now();
  Launcher launcher(3, "die-stubbornly");
  const std::string text = launcher.Read();
  EXPECT_LT(Clock::now() - start, kSoon);
  EXPECT_EQ(Occurrences(text, "\n"), 1) << text;
  EXPECT_EQ(launcher.Wait(), 128 + SIGKILL);
}

TEST(LocalRanks, AnInterruptedLauncherEndsItsRanksQuietly) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    Launcher launcher(3, "hang");
    launcher.Read(3);
    kill(launcher.pid(), signal);
    // The end of the pipe: nobody holds it any more.
    EXPECT_EQ(Occurrences(launcher.Read(), "\n"), 3);
    EXPECT_EQ(launcher.Wait(), 1000 + signal);
  }
}

TEST(LocalRanks, ASecondSignalKillsRanksThatDoNotEnd) {
  const auto start = Clock::now();
  Launcher launcher(3, "hang-stubbornly");
  launcher.Read(3);
  kill(launcher.pid(), SIGTERM);
  // Each rank says that it got the first.
  launcher.Read(6);
  kill(launcher.pid(), SIGTERM);
  launcher.Read();
  EXPECT_LT(Clock::now() - start, kSoon);
  EXPECT_EQ(launcher.Wait(), 1000 + SIGTERM);
}

TEST(LocalRanks, ASignalThatARankReportedFirstIsNoSecondOne) {
  Launcher launcher(1, "stop-and-save");
  launcher.Read(1);
  kill(launcher.pid(), SIGINT);
  EXPECT_EQ(launcher.Read(), "stopped\nsaved\n");
  EXPECT_EQ(launcher.Wait(), 1000 + SIGINT);
}

TEST(LocalRanks, WhereHangupIsIgnoredItEndsNobody) {
  Launcher launcher(2, "hang", SIGHUP);
  launcher.Read(2);
  kill(launcher.pid(), SIGHUP);
  kill(launcher.pid(), SIGTERM);
  launcher.Read();
  EXPECT_EQ(launcher.Wait(), 1000 + SIGTERM);
}

TEST(LocalRanks, ARankThatSaysStopEndsAllOfThemQuietly) {
  Launcher launcher(3, "stop");
  EXPECT_EQ(launcher.Read(), "");
  EXPECT_EQ(launcher.Wait(), 1000 + SIGPIPE);
}

TEST(LocalRanks, ARankThatDiesOfSigintEndsAllOfThemQuietly) {
  Launcher launcher(3, "interrupted");
  EXPECT_EQ(launcher.Read(), "");
  EXPECT_EQ(launcher.Wait(), 1000 + SIGINT);
}

TEST(LocalRanks, RanksDieWithALauncherThatIsKilled) {
  Launcher launcher(3, "hang");
  launcher.Read(3);
  kill(launcher.pid(), SIGKILL);
  EXPECT_EQ(Occurrences(launcher.Read(), "\n"), 3);
  EXPECT_EQ(launcher.Wait(), 1000 + SIGKILL);
}

TEST(OwnProgram, IsFoundInTheFolderThatShowsProcesses) {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  EXPECT_EQ(OwnProgram().value(), std::string(path, length));
  const Status status = OwnProgram("/nowhere").status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(status.message().starts_with("/nowhere is not mounted, "))
      << status.message();
}

TEST(LocalRanks, WithoutProcSayWhatIsMissing) {
  const pid_t child = ForkIntoUserNamespace();
  if (child == 0) {
    if (!HideProc()) {
      _exit(2);
    }
    const Status status = RunLocalRanks(2, {"rank", "environment"}).status();
    _exit(status.message().starts_with("/proc is not mounted, ") ? 0 : 1);
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

int main(int argc, char** argv) {
  constexpr char kErrorFd[] = "--error-fd=";
  if (argc == 3 && std::strncmp(argv[2], kErrorFd, sizeof kErrorFd - 1) == 0) {
    return ringpipe::kRoles.at(argv[1])(
        std::atoi(std::getenv("RINGPIPE_RANK")),
        std::atoi(argv[2] + sizeof kErrorFd - 1));
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
