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

#include "base/while_waiting.h"
#include "gtest/gtest.h"

namespace ringpipe {
namespace {

using std::chrono::hours;

const auto kNothing = [](const Status&) {};

TEST(CallOrderTest, ACallMayTakeSeveralNumbers) {
  CallOrder order;
  std::vector<std::uint64_t> numbers;
  const auto note = [&](std::uint64_t number) {
    numbers.push_back(number);
    return Status::Ok();
  };
  ASSERT_TRUE(order
                  .RunLater(
                      Deadline::Infinite(), note, [](const Status&) {}, {}, 2)
                  .ok());
  ASSERT_TRUE(order.RunNow(Deadline::Infinite(), note, 3).ok());
  ASSERT_TRUE(order.RunNow(Deadline::Infinite(), note).ok());
  EXPECT_EQ(numbers, (std::vector<std::uint64_t>{0, 2, 5}));
  EXPECT_FALSE(order.pending());
}

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

// It would wait for the lock, if the thread that calls it held it.
TEST(CallOrderTest, AfterACallAFunctionMayUseTheOrder) {
  std::atomic<int> after = 0;
  std::atomic<int> ran = 0;
  std::shared_ptr<int> held = std::make_shared<int>();
  const std::weak_ptr<int> watched = held;
  {
    CallOrder order;
    const auto run = [&](std::uint64_t) {
      ++ran;
      return Status(StatusCode::kAborted, "its end");
    };
    ASSERT_TRUE(
        order
            .RunLater(
                Deadline::Infinite(), run, kNothing,
                [&, held](const Status& status) {
                  EXPECT_EQ(status.message(), "its end");
                  EXPECT_FALSE(order.pending());
                  EXPECT_TRUE(
                      order.RunLater(Deadline::Infinite(), run, kNothing).ok());
                  ++after;
                })
            .ok());
    held.reset();
    while (ran < 2) {
      std::this_thread::yield();
    }
    EXPECT_EQ(watched.use_count(), 0);
  }
  EXPECT_EQ(after, 1);
}

TEST(CallOrderTest, AfterEachQueuedCallItIsCalledAlsoWhereTheOrderEnds) {
  constexpr int kCalls = 10;
  std::promise<void> go;
  int after = 0;
  std::thread opener;
  {
    CallOrder order;
    for (int call = 0; call < kCalls; ++call) {
      ASSERT_TRUE(order
                      .RunLater(
                          Deadline::Infinite(),
                          [&](std::uint64_t sequence) {
                            if (sequence == 0) {
                              go.get_future().wait();
                            }
                            return Status::Ok();
                          },
                          kNothing, [&](const Status&) { ++after; })
                      .ok());
    }
    order.Close();
    EXPECT_EQ(order
                  .RunLater(
                      Deadline::Infinite(),
                      [](std::uint64_t) { return Status::Ok(); }, kNothing,
                      [&](const Status&) { ADD_FAILURE(); })
                  .code(),
              StatusCode::kAborted);
    opener = std::thread([&] { go.set_value(); });
  }
  opener.join();
  EXPECT_EQ(after, kCalls);
}

TEST(CallOrderTest, AFunctionThatEndsTheWaitForATurnEndsTheCallsBefore) {
  std::promise<void> inside, end;
  CallOrder order([&] { end.set_value(); });
  std::thread first([&] {
    EXPECT_TRUE(order
                    .RunNow(Deadline::Infinite(),
                            [&](std::uint64_t) {
                              inside.set_value();
                              end.get_future().wait();
                              return Status::Ok();
                            })
                    .ok());
  });
  inside.get_future().wait();
  const WhileWaiting hook = {[] { return true; }, std::chrono::milliseconds(1)};
  const BlockingCall call(hook);
  bool ran = false;
  EXPECT_TRUE(order
                  .RunNow(Deadline::Infinite(),
                          [&](std::uint64_t) {
                            ran = true;
                            return Status::Ok();
                          })
                  .ok());
  EXPECT_TRUE(ran);
  first.join();
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
