#include "base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <ctime>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {
int closed_after_poll = -1;
}  // namespace

// Instead of the system's poll(): something may happen between it and what
// follows.
extern "C" int PollOfTest(pollfd* descriptors, nfds_t count,
                          int timeout_ms) __asm__("poll");
extern "C" int PollOfTest(pollfd* descriptors, nfds_t count, int timeout_ms) {
  timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1'000'000L};
  const auto ready =
      syscall(SYS_ppoll, descriptors, count,
              timeout_ms < 0 ? nullptr : &timeout, nullptr, std::size_t{0});
  close(std::exchange(closed_after_poll, -1));
  return static_cast<int>(ready);
}

namespace ringpipe {
namespace {

// While it lives, what is written to standard error comes out of `reader`.
class RedirectedStderr {
 public:
  explicit RedirectedStderr(int writer) : saved_(dup(STDERR_FILENO)) {
    dup2(writer, STDERR_FILENO);
    close(writer);
  }
  ~RedirectedStderr() {
    dup2(saved_, STDERR_FILENO);
    close(saved_);
  }

 private:
  int saved_;
};

std::string ReadAll(int reader) {
  fcntl(reader, F_SETFL, O_NONBLOCK);
  std::string all;
  char buffer[65536];
  for (ssize_t got; (got = read(reader, buffer, sizeof buffer)) > 0;) {
    all.append(buffer, got);
  }
  return all;
}

// More than anything between two processes holds.
constexpr int kManyLines = 20'000;

void ExpectLosesWhatNobodyReads(int reader, int writer) {
  const Logger logger(LogLevel::kInfo, "rank 3");
  {
    const RedirectedStderr redirected(writer);
    for (int i = 0; i < kManyLines; ++i) {
      logger.Info("line " + std::to_string(i) + std::string(50, '.'));
    }
    const std::string kept = ReadAll(reader);
    EXPECT_TRUE(kept.starts_with("ringpipe[rank 3] info: line 0."));
    EXPECT_EQ(kept.back(), '\n');
    logger.Error("after");
  }
  const std::string after = ReadAll(reader);
  EXPECT_TRUE(
      after.ends_with(" lines were lost: nobody read them\n"
                      "ringpipe[rank 3] error: after\n"))
      << after;
  close(reader);
}

TEST(LogTest, AFullPipeHoldsNobodyUp) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  ExpectLosesWhatNobodyReads(ends[0], ends[1]);
}

TEST(LogTest, AFullSocketHoldsNobodyUp) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  ExpectLosesWhatNobodyReads(ends[0], ends[1]);
}

TEST(LogTest, APipeThatNobodyHasOpenIsNoError) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  close(ends[0]);
  const RedirectedStderr redirected(ends[1]);
  Logger().Error("nobody reads this, and no signal comes");
}

// SIGPIPE would end this process.
TEST(LogTest, APipeWhoseReaderGoesAtTheLastMomentIsNoError) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const RedirectedStderr redirected(ends[1]);
  closed_after_poll = ends[0];
  Logger().Error("nobody reads this, and no signal comes");
  EXPECT_EQ(closed_after_poll, -1);
  sigset_t pending;
  sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 0);
}

TEST(LogTest, ALongLineIsCut) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  {
    const RedirectedStderr redirected(ends[1]);
    Logger().Error(std::string(100'000, 'x'));
  }
  const std::string line = ReadAll(ends[0]);
  EXPECT_LT(line.size(), 5000U);
  EXPECT_TRUE(line.ends_with("xxx...\n"));
  close(ends[0]);
}

// As a communicator's parts do, each of which has a copy.
TEST(LogTest, ACallbackIsCalledByOneThreadAtATime) {
  constexpr int kThreads = 4;
  constexpr int kLines = 1000;
  std::atomic<int> inside = 0;
  std::atomic<int> overlaps = 0;
  int lines = 0;  // not atomic: nor are the counters of users
  const Logger logger(LogLevel::kInfo, [&](LogLevel, std::string_view) {
    overlaps += inside++;
    std::this_thread::yield();
    ++lines;
    --inside;
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([copy = logger] {
      for (int line = 0; line < kLines; ++line) {
        copy.Info("line");
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(overlaps, 0);
  EXPECT_EQ(lines, kThreads * kLines);
}

}  // namespace
}  // namespace ringpipe
