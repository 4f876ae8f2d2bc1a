#include "base/thread_count.h"

#include <atomic>
#include <thread>

#include "gtest/gtest.h"

namespace ringpipe {
namespace {

TEST(ThreadCountTest, HasEveryThreadThatRuns) {
  std::thread([] {}).join();  // a sanitizer starts one of its own then
  const int before = CountThreads();
  std::atomic<bool> over = false;
  std::thread waits([&over] { over.wait(false); });
  EXPECT_EQ(CountThreads(), before + 1);
  over = true;
  over.notify_all();
  waits.join();
  EXPECT_EQ(CountThreads(), before);
}

TEST(ThreadCountTest, HasNoThreadThatWasJoined) {
  std::thread([] {}).join();
  const int before = CountThreads();
  for (int round = 0; round < 2000; ++round) {
    std::thread([] {}).join();
    ASSERT_EQ(CountThreads(), before) << "round " << round;
  }
}

}  // namespace
}  // namespace ringpipe
