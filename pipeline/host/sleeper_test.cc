#include "pipeline/host/sleeper.h"

#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <thread>

#include "base/file_descriptor.h"
#include "gtest/gtest.h"

namespace ringpipe {
namespace {

constexpr int kRounds = 400'000;

// Both begin a round together; one of them then waits a little, so that in some
// rounds the stores of both are in the processors' store buffers.
class Start {
 public:
  void Wait(int pause) {
    const int round = arrived_.fetch_add(1) / 2;
    while (arrived_.load(std::memory_order_acquire) < 2 * (round + 1)) {
      sched_yield();
    }
    for (int i = 0; i < pause; ++i) {
      arrived_.load(std::memory_order_acquire);
    }
  }

 private:
  std::atomic<int> arrived_ = 0;
};

// As the executor does. Returns whether it was woken, where it had to be.
bool SleepUntil(const std::atomic<int>& written, int round,
                RegionHeader& header, int own) {
  bool woken = true;
  while (woken && written.load(std::memory_order_acquire) < round) {
    LieDown(header);
    if (written.load(std::memory_order_acquire) < round) {
      pollfd wake = {own, POLLIN, 0};
      woken = poll(&wake, 1, /*timeout=*/10'000) == 1;
    }
    GetUp(header);
    std::byte wake;
    static_cast<void>(!recv(own, &wake, sizeof wake, MSG_DONTWAIT));
  }
  return woken;
}

// Without the fences some round ends with a rank that sleeps and a peer that
// has not seen it.
TEST(SleeperTest, WhoeverLiesDownWhileAPeerWritesIsWoken) {
  std::array<int, 2> ends = {};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const FileDescriptor own(ends[0]);
  const FileDescriptor others(ends[1]);
  // AddressSanitizer's stack has no lines of 64 bytes.
  const auto header = std::make_unique<RegionHeader>();
  alignas(64) std::atomic<int> written = 0;
  Start start;
  std::thread writer([&] {
    Waker waker(2);
    waker.Attach(1, Sleeper(*header, others.get()));
    for (int round = 1; round <= kRounds; ++round) {
      start.Wait(round % 16);
      written.store(round, std::memory_order_release);
      waker.Written(1);
      waker.NotifyAgain();
    }
  });
  int lost = 0;  // the round in which nobody woke it
  for (int round = 1; round <= kRounds; ++round) {
    start.Wait(round / 16 % 16);
    if (lost == 0 && !SleepUntil(written, round, *header, own.get())) {
      lost = round;
    }
  }
  writer.join();
  EXPECT_EQ(lost, 0) << "nobody woke it in that round";
}

}  // namespace
}  // namespace ringpipe
