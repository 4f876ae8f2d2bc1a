#include "engine/call_order.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace ringpipe {
namespace {

using std::chrono::hours;

const auto kNothing = [](const Status&) {};

TEST(CallOrderTest, CallsOfBothKindsRunInTheOrderInWhichTheyWereMade) {
  CallOrder order;
  std::vector<std::uint64_t> ran;
  const auto run = [&](std::uint64_t sequence) {
    ran.push_back(sequence);
    return Status::Ok();
  };
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(order.RunLater(Deadline::Infinite(), run, kNothing).ok());
    ASSERT_TRUE(order.RunNow(Deadline::Infinite(), run).ok());
  }
  EXPECT_EQ(ran, (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_FALSE(order.pending());
}

TEST(CallOrderTest, TheEarliestDeadlineIsThatOfAnyCallThatHasNotEnded) {
  CallOrder order;
  const auto& earliest = order.earliest_deadline();
  EXPECT_EQ(earliest.load(), Clock::time_point::max());

  const Clock::time_point now = Clock::now();
  std::promise<void> go;
  std::vector<Clock::time_point> seen;  // by each call, while it runs
  const auto run = [&](std::uint64_t sequence) {
    if (sequence == 0) {
      go.get_future().wait();
    }
    seen.push_back(earliest.load());
    return Status::Ok();
  };
  for (const int h : {9, 3, 5, 4}) {
    ASSERT_TRUE(
        order.RunLater(Deadline::At(now + hours(h)), run, kNothing).ok());
  }
  EXPECT_EQ(earliest.load(), now + hours(3));
  go.set_value();
  ASSERT_TRUE(order.RunNow(Deadline::Infinite(), run).ok());
  EXPECT_EQ(seen, (std::vector<Clock::time_point>{
                      now + hours(3), now + hours(3), now + hours(4),
                      now + hours(4), Clock::time_point::max()}));
}

TEST(CallOrderTest, TheProgressThreadTakesNoSignalsOfTheApplication) {
  CallOrder order;
  std::promise<bool> blocked;
  ASSERT_TRUE(order
                  .RunLater(
                      Deadline::Infinite(),
                      [&](std::uint64_t) {
                        sigset_t mask;
                        pthread_sigmask(SIG_SETMASK, nullptr, &mask);
                        blocked.set_value(sigismember(&mask, SIGTERM) == 1);
                        return Status::Ok();
                      },
                      kNothing)
                  .ok());
  EXPECT_TRUE(blocked.get_future().get());
  sigset_t own;
  pthread_sigmask(SIG_SETMASK, nullptr, &own);
  EXPECT_EQ(sigismember(&own, SIGTERM), 0);
}

TEST(CallOrderTest, ACallThatThrowsGivesItsTurnBack) {
  CallOrder order;
  const auto throws = [](std::uint64_t) -> Status { throw std::bad_alloc(); };
  EXPECT_THROW(static_cast<void>(order.RunNow(Deadline::Infinite(), throws)),
               std::bad_alloc);
  std::promise<Status> ended;
  ASSERT_TRUE(
      order
          .RunLater(Deadline::Infinite(), throws,
                    [&](const Status& status) { ended.set_value(status); })
          .ok());
  EXPECT_EQ(ended.get_future().get().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(order
                  .RunNow(Deadline::Infinite(),
                          [](std::uint64_t) { return Status::Ok(); })
                  .ok());
  EXPECT_FALSE(order.pending());
}

TEST(CallOrderTest, LastsUntilItsCallersHaveLeft) {
  auto order = std::make_unique<CallOrder>();
  std::promise<void> inside, go;
  std::atomic<bool> left = false;
  std::thread caller([&] {
    const CallOrder::Caller here(*order);
    static_cast<void>(order->RunNow(Deadline::Infinite(), [&](std::uint64_t) {
      inside.set_value();
      go.get_future().wait();
      return Status::Ok();
    }));
    // Destroyed as soon as the turn has ended, it would be by now.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    left = true;
  });
  inside.get_future().wait();
  order->Close();
  EXPECT_EQ(order
                ->RunNow(Deadline::Infinite(),
                         [](std::uint64_t) { return Status::Ok(); })
                .code(),
            StatusCode::kAborted);
  std::thread destroyer([&] {
    order.reset();
    EXPECT_TRUE(left);
  });
  go.set_value();
  caller.join();
  destroyer.join();
}

}  // namespace
}  // namespace ringpipe
