#include "bench/interruption.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string>

#include "base/deadline.h"

namespace ringpipe {
namespace {

constexpr std::chrono::seconds kPatience(40);
constexpr std::chrono::hours kForever(1);

void Say(const char* line) {
  (void)!write(STDOUT_FILENO, line, std::strlen(line));
}

// Takes a signal. Returns when it may save.
void BeInterrupted(SignalWatch& watch) {
  watch.Arm([](int) {});
  Say("armed\n");
  pollfd fd = {watch.fd(), POLLIN, 0};
  poll(&fd, 1, -1);
  if (watch.Stop() == SIGTERM) {
    Say("saving\n");
  }
}

[[noreturn]] void SaveForEver() {
  for (;;) {
    pause();
  }
}

// A process that does what `body` says, and what it says.
class Process {
 public:
  explicit Process(void (*body)()) {
    EXPECT_EQ(pipe(pipe_), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(pipe_[1], STDOUT_FILENO);
      body();
      _exit(0);
    }
    close(pipe_[1]);
  }

  ~Process() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(pipe_[0]);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void Send(int signal) const { kill(pid_, signal); }

  // Waits until it says `line`.
  void Expect(const std::string& line) const {
    std::string text;
    char byte;
    while (text.find('\n') == text.npos && read(pipe_[0], &byte, 1) == 1) {
      text += byte;
    }
    EXPECT_EQ(text, line + "\n");
  }

  // The signal of which it dies; 0 where it ends by itself or not at all.
  // Meanwhile it gets `signal` again and again, where that is one.
  int DiesOf(int signal = 0) {
    const Deadline deadline = Deadline::After(kPatience);
    int status = 0;
    while (waitpid(pid_, &status, WNOHANG) == 0) {
      if (deadline.expired()) {
        ADD_FAILURE() << "it goes on";
        return 0;
      }
      kill(pid_, signal);
      poll(nullptr, 0, 10);
    }
    pid_ = -1;
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }

 private:
  int pipe_[2];
  pid_t pid_;
};

TEST(SignalWatch, SavingThatDoesNotEndIsEnded) {
  Process process([] {
    // Enough to come to the saving.
    SignalWatch watch(std::chrono::seconds(5));
    BeInterrupted(watch);
    SaveForEver();
  });
  process.Expect("armed");
  process.Send(SIGTERM);
  process.Expect("saving");
  EXPECT_EQ(process.DiesOf(), SIGTERM);
}

TEST(SignalWatch, WhoSignalsAgainDoesNotWaitForSaving) {
  Process process([] {
    SignalWatch watch(kForever);
    BeInterrupted(watch);
    SaveForEver();
  });
  process.Expect("armed");
  process.Send(SIGTERM);
  process.Expect("saving");
  EXPECT_EQ(process.DiesOf(SIGINT), SIGTERM);
}

TEST(SignalWatch, WhatALauncherPassesOnIsNoSecondSignal) {
  Process process([] {
    SignalWatch watch(kForever);
    BeInterrupted(watch);
    kill(getpid(), SIGINT);
    watch.Stop();  // by now the watch has seen it
    Say("saved\n");
    DieOf(SIGTERM);
  });
  process.Expect("armed");
  process.Send(SIGTERM);
  process.Expect("saving");
  process.Expect("saved");
  EXPECT_EQ(process.DiesOf(), SIGTERM);
}

TEST(SignalWatch, ASignalBeforeItIsArmedEndsTheProcess) {
  Process process([] {
    SignalWatch watch(kForever);
    kill(getpid(), SIGTERM);
    watch.Stop();
    Say("still there\n");
  });
  EXPECT_EQ(process.DiesOf(), SIGTERM);
}

TEST(SignalWatch, AfterAWatchWithoutSignalsTheyDoWhatTheyDid) {
  Process process([] {
    SignalWatch watch(kForever);
    watch.Arm([](int) {});
    if (watch.Stop() == 0) {
      kill(getpid(), SIGTERM);
    }
  });
  EXPECT_EQ(process.DiesOf(), SIGTERM);
}

}  // namespace
}  // namespace ringpipe
