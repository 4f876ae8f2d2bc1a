#include "bench/local_ranks.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "base/deadline.h"
#include "bench/error_log.h"
#include "bench/interruption.h"
#include "bench/terminal.h"

namespace ringpipe {
namespace {

// After the first failure. A rank that is well finds out about a dead peer and
// ends within 2 s; these make sure of it.
constexpr std::chrono::milliseconds kTermAfter(1400);
constexpr std::chrono::milliseconds kKillAfter(1800);

// After a signal that was passed on to the ranks. Rank 0 gives itself 10 s from
// the signal on to save its report (SignalWatch).
constexpr std::chrono::milliseconds kKillStoppedAfter(12'000);

void PrintLine(const std::string& line) {
  // One write, so that it does not mix with the ranks' own lines. On a terminal
  // a progress bar may stand on the line.
  const std::string text = (TakesEscapes(STDERR_FILENO) ? kClearLine : "") +
                           (program_invocation_short_name + (": " + line)) +
                           "\n";
  (void)!write(STDERR_FILENO, text.data(), text.size());
}

Result<std::string> RandomName() {
  unsigned char bytes[12];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) {
    return ErrnoStatus(StatusCode::kUnavailable, "getrandom", errno);
  }
  std::string name;
  for (const unsigned char byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    name += kDigits[byte >> 4];
    name += kDigits[byte & 15];
  }
  return name;
}

bool IsOurs(const char* variable) {
  for (const char* name : {"RINGPIPE_RANK=", "RINGPIPE_SIZE=", "RINGPIPE_ROOT=",
                           "RINGPIPE_JOB_ID="}) {
    if (std::strncmp(variable, name, std::strlen(name)) == 0) {
      return true;
    }
  }
  return false;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) {
    pointers.push_back(string.data());
  }
  pointers.push_back(nullptr);
  return pointers;
}

class LocalRanks {
 public:
  LocalRanks(int ranks, std::vector<std::string> arguments, int results)
      : ranks_(ranks),
        results_(results),
        arguments_(std::move(arguments)),
        log_(PrintLine) {}

  ~LocalRanks() {
    for (const int fd : {pipe_[0], pipe_[1], signal_fd_}) {
      if (fd >= 0) {
        close(fd);
      }
    }
    sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
  }
  LocalRanks(const LocalRanks&) = delete;
  LocalRanks& operator=(const LocalRanks&) = delete;

  Result<JobEnd> Run() {
    RINGPIPE_RETURN_IF_ERROR(Open());
    const Status started = StartAll();
    if (!started.ok()) {
      Signal(SIGKILL);
    }
    while (running_ > 0) {
      WaitForEvent();
      Escalate();
    }
    DrainPipe();
    if (stopped_by_ && sent_ == SIGKILL && TakesEscapes(STDERR_FILENO)) {
      // A rank that was killed leaves its progress bar.
      (void)!write(STDERR_FILENO, kClearLine, std::strlen(kClearLine));
    }
    if (!started.ok()) {
      return started;
    }
    if (worst_ > results_ && log_.empty() && !stopped_by_) {
      log_.Print("a rank ended with exit status " + std::to_string(worst_));
    }
    return JobEnd{worst_, stopped_by_};
  }

 private:
  Status Open() {
    // Before the first fork, so that no signal is missed.
    sigset_t mask = EndingSignals();
    sigaddset(&mask, SIGCHLD);
    sigprocmask(SIG_BLOCK, &mask, &old_mask_);
    signal_fd_ = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signal_fd_ < 0 || pipe2(pipe_, O_CLOEXEC | O_NONBLOCK) != 0) {
      return ErrnoStatus(StatusCode::kResourceExhausted,
                         "cannot start ranks: signalfd or pipe", errno);
    }
    return {};
  }

  Status StartAll() {
    RINGPIPE_ASSIGN_OR_RETURN(const std::string program, OwnProgram());
    RINGPIPE_ASSIGN_OR_RETURN(const std::string job, RandomName());
    arguments_.push_back("--error-fd=" + std::to_string(pipe_[1]));
    for (int rank = 0; rank < ranks_; ++rank) {
      RINGPIPE_RETURN_IF_ERROR(Start(rank, program, job));
    }
    return {};
  }

  Status Start(int rank, const std::string& program, const std::string& job) {
    std::vector<std::string> environment = {
        "RINGPIPE_RANK=" + std::to_string(rank),
        "RINGPIPE_SIZE=" + std::to_string(ranks_),
        "RINGPIPE_ROOT=unix:@ringpipe-" + job,
        "RINGPIPE_JOB_ID=" + job,
    };
    for (char** variable = environ; *variable != nullptr; ++variable) {
      if (!IsOurs(*variable)) {
        environment.emplace_back(*variable);
      }
    }
    const std::vector<char*> argv = Pointers(arguments_);
    const std::vector<char*> envp = Pointers(environment);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid == 0) {
      Exec(program.c_str(), argv.data(), envp.data(), parent);
    }
    if (pid < 0) {
      return ErrnoStatus(StatusCode::kResourceExhausted,
                         "cannot start rank " + std::to_string(rank) + ": fork",
                         errno);
    }
    pids_.push_back(pid);
    ++running_;
    return {};
  }

  // In the child; only calls that are safe there.
  [[noreturn]] void Exec(const char* program, char* const* argv,
                         char* const* envp, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent) {  // else it died before the line above
      // Blocking, and kept across exec.
      fcntl(pipe_[1], F_SETFD, 0);
      sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
      execve(program, argv, envp);
    }
    _exit(127);
  }

  void WaitForEvent() {
    pollfd fds[] = {{signal_fd_, POLLIN, 0}, {pipe_[0], POLLIN, 0}};
    poll(fds, 2, MsToNextStep());
    // First the signals: what ranks say about one is not printed.
    signalfd_siginfo info;
    while (read(signal_fd_, &info, sizeof info) == sizeof info) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal != SIGCHLD) {
        Signalled(signal);
      }
    }
    // What a rank wrote before it ended comes before the news of its end.
    DrainPipe();
    Reap();
  }

  int MsToNextStep() const {
    if (!failed_at_ || sent_ == SIGKILL) {
      return -1;
    }
    const auto next = stopped_by_  ? kKillStoppedAfter
                      : sent_ == 0 ? kTermAfter
                                   : kKillAfter;
    return Deadline::At(*failed_at_ + next).PollTimeoutMs(60'000) + 1;
  }

  void DrainPipe() {
    char bytes[PIPE_BUF];
    ssize_t count;
    while ((count = read(pipe_[0], bytes, sizeof bytes)) > 0) {
      if (!stopped_by_) {
        log_.Take({bytes, static_cast<std::size_t>(count)});
      }
      if (log_.stop_signal() != 0 && !stopped_by_) {
        Stop(log_.stop_signal());
      }
    }
  }

  // This process got a signal. What ranks said about one before does not count:
  // a terminal sends it to all, and they may have been faster.
  void Signalled(int signal) {
    if (std::exchange(signalled_, true)) {
      Signal(SIGKILL);  // somebody is losing patience
    } else if (!stopped_by_) {
      Stop(signal);
    }
  }

  // Somebody wants an end, and no complaints about it. Ranks ignore SIGPIPE.
  void Stop(int signal) {
    stopped_by_ = signal;
    if (sent_ == SIGKILL) {
      return;
    }
    failed_at_ = Clock::now();
    Signal(signal == SIGPIPE ? SIGTERM : signal);
  }

  void Reap() {
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
      const auto at = std::find(pids_.begin(), pids_.end(), pid);
      if (at == pids_.end()) {
        continue;
      }
      *at = -1;
      --running_;
      DrainPipe();
      Ended(static_cast<int>(at - pids_.begin()), pid, status);
    }
  }

  void Ended(int rank, pid_t pid, int status) {
    int exit_status = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) {
      const int signal = WTERMSIG(status);
      if (sent_ != 0 && (signal == sent_ || signal == SIGKILL)) {
        return;  // our doing
      }
      // A terminal sends SIGINT to all; this one was a little faster.
      if (signal == SIGINT && !stopped_by_) {
        Stop(signal);
      }
      exit_status = 128 + signal;
      if (!stopped_by_) {
        log_.Print("rank " + std::to_string(rank) + " (pid " +
                   std::to_string(pid) + ") was killed by signal " +
                   std::to_string(signal) + " (" + SignalName(signal) + ")");
      }
    }
    worst_ = std::max(worst_, exit_status);
    if (exit_status > results_) {
      failed_at_ = failed_at_.value_or(Clock::now());
    }
  }

  void Escalate() {
    if (!failed_at_) {
      return;
    }
    const auto since = Clock::now() - *failed_at_;
    if (since >= (stopped_by_ ? kKillStoppedAfter : kKillAfter) &&
        sent_ != SIGKILL) {
      Signal(SIGKILL);
    } else if (since >= kTermAfter && sent_ == 0) {
      Signal(SIGTERM);
    }
  }

  void Signal(int signal) {
    sent_ = signal;
    for (const pid_t pid : pids_) {
      if (pid > 0) {
        kill(pid, signal);
      }
    }
  }

  const int ranks_;
  const int results_;
  std::vector<std::string> arguments_;
  ErrorLog log_;
  sigset_t old_mask_ = {};
  int signal_fd_ = -1;
  int pipe_[2] = {-1, -1};
  std::vector<pid_t> pids_;  // by rank; -1: ended
  int running_ = 0;
  int worst_ = 0;
  std::optional<int> stopped_by_;  // as JobEnd's
  bool signalled_ = false;         // this process was
  std::optional<Clock::time_point> failed_at_;
  int sent_ = 0;  // the last signal that was sent to the ranks
};

}  // namespace

Status CheckIsNoRank() {
  return std::getenv("RINGPIPE_RANK") == nullptr
             ? Status::Ok()
             : Status(StatusCode::kInvalidArgument,
                      "RINGPIPE_RANK is set, which makes this process one rank "
                      "of a job, and --ranks starts a job of its own: use one "
                      "of the two");
}

Result<JobEnd> RunLocalRanks(int ranks,
                             const std::vector<std::string>& arguments,
                             int results) {
  return LocalRanks(ranks, arguments, results).Run();
}

// Programs that are started as /proc/self/exe are all called "exe" in ps.
Result<std::string> OwnProgram(const std::string& proc) {
  const std::string link = proc + "/self/exe";
  char path[PATH_MAX];
  const ssize_t length = readlink(link.c_str(), path, sizeof path);
  if (length < 0 && errno == ENOENT) {
    return Status(
        StatusCode::kUnavailable,
        proc + " is not mounted, or belongs to another PID namespace: " +
            "ranks are started through " + link + ", which is missing");
  }
  if (length >= 0 && length < static_cast<ssize_t>(sizeof path)) {
    std::string name(path, length);
    if (access(name.c_str(), X_OK) == 0) {
      return name;
    }
  }
  return link;
}

int EndAs(const JobEnd& end) {
  if (end.stopped_by) {
    DieOf(*end.stopped_by);
  }
  return end.exit_status;
}

void ReportError(int error_fd, int rank, const Status& status) {
  if (error_fd >= 0) {
    const std::string record = ErrorLog::Record(rank, status);
    // The pipe holds some 16 records and its reader is waiting for them.
    if (write(error_fd, record.data(), record.size()) ==
        static_cast<ssize_t>(record.size())) {
      return;
    }
  }
  PrintLine((rank < 0 ? "" : "rank " + std::to_string(rank) + ": ") +
            status.ToString());
}

void ReportStop(int error_fd, int signal) {
  if (error_fd >= 0) {
    const std::string record = ErrorLog::StopRecord(signal);
    (void)!write(error_fd, record.data(), record.size());
  }
}

}  // namespace ringpipe
