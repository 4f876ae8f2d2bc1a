#include "base/while_waiting.h"

#include <atomic>
#include <thread>

#include "gtest/gtest.h"

namespace ringpipe {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

// A wait on the calling thread whose end comes from its own hook.
struct Wait {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;

  Waited Until(const Deadline& deadline) {
    std::unique_lock<std::mutex> lock(mutex);
    return WaitUntil(changed, lock, deadline, [this] { return done; });
  }
  // Would block if the waiter held the lock.
  void End() {
    const std::lock_guard<std::mutex> lock(mutex);
    done = true;
  }
};

TEST(WhileWaitingTest, TheFunctionIsCalledOnTheWaitingThreadWithoutTheLock) {
  Wait wait;
  int calls = 0;
  const auto thread = std::this_thread::get_id();
  const WhileWaiting hook = {[&] {
                               EXPECT_EQ(std::this_thread::get_id(), thread);
                               if (++calls == 3) {
                                 wait.End();
                               }
                               return false;
                             },
                             milliseconds(1)};
  const BlockingCall call(hook);
  EXPECT_EQ(wait.Until(Deadline::Infinite()), Waited::kDone);
  EXPECT_EQ(calls, 3);
}

TEST(WhileWaitingTest, WhatIsDoneOrExpiresSoonerDoesNotCallIt) {
  Wait wait;
  int calls = 0;
  const WhileWaiting hook = {[&] { return ++calls > 0; }, hours(1)};
  const BlockingCall call(hook);
  EXPECT_EQ(wait.Until(Deadline::After(milliseconds(2))), Waited::kExpired);
  wait.End();
  EXPECT_EQ(wait.Until(Deadline::Infinite()), Waited::kDone);
  EXPECT_EQ(calls, 0);
}

TEST(WhileWaitingTest, ItEndsTheCallAndIsNotCalledAgainForIt) {
  Wait wait;
  int calls = 0;
  const WhileWaiting hook = {[&] { return ++calls > 0; }, milliseconds(1)};
  {
    const BlockingCall call(hook);
    EXPECT_EQ(wait.Until(Deadline::Infinite()), Waited::kEnded);
    EXPECT_EQ(wait.Until(Deadline::After(milliseconds(20))), Waited::kExpired);
    EXPECT_EQ(calls, 1);
    EXPECT_TRUE(call.Current()->Ends());
  }
  const BlockingCall next(hook);
  EXPECT_EQ(wait.Until(Deadline::Infinite()), Waited::kEnded);
  EXPECT_EQ(calls, 2);
}

TEST(WhileWaitingTest, TheIntervalGoesOnFromOneWaitOfACallToTheNext) {
  Wait wait;
  int calls = 0;
  const WhileWaiting hook = {[&] { return ++calls > 0; }, milliseconds(50)};
  const BlockingCall call(hook);
  Waited waited = Waited::kExpired;
  while (waited == Waited::kExpired) {
    waited = wait.Until(Deadline::After(milliseconds(1)));
  }
  EXPECT_EQ(waited, Waited::kEnded);
}

TEST(WhileWaitingTest, AThreadWithoutABlockingCallHasNone) {
  const WhileWaiting hook = {[] { return true; }, milliseconds(1)};
  const BlockingCall call(hook);
  ASSERT_NE(BlockingCall::Current(), nullptr);
  std::thread([] {
    Wait wait;
    EXPECT_EQ(BlockingCall::Current(), nullptr);
    EXPECT_EQ(wait.Until(Deadline::After(milliseconds(5))), Waited::kExpired);
    EXPECT_EQ(BlockingCall::PollTimeoutMs(7), 7);
    EXPECT_FALSE(BlockingCall::EndsAfterPoll(/*interrupted=*/true));
    const WhileWaiting none;
    const BlockingCall without(none);
    EXPECT_EQ(BlockingCall::Current(), nullptr);
  }).join();
}

TEST(WhileWaitingTest, PollSleepsNoLongerThanUntilItIsDue) {
  const WhileWaiting hook = {[] { return true; }, milliseconds(50)};
  const BlockingCall call(hook);
  EXPECT_LE(BlockingCall::PollTimeoutMs(-1), 51);
  EXPECT_LE(BlockingCall::PollTimeoutMs(1'000'000), 51);
  EXPECT_EQ(BlockingCall::PollTimeoutMs(0), 0);
}

TEST(WhileWaitingTest, ASignalMakesItDueAtOnce) {
  int calls = 0;
  const WhileWaiting hook = {[&] { return ++calls > 1; }, hours(1)};
  const BlockingCall call(hook);
  EXPECT_FALSE(BlockingCall::EndsAfterPoll(/*interrupted=*/false));
  EXPECT_EQ(calls, 0);
  EXPECT_FALSE(BlockingCall::EndsAfterPoll(/*interrupted=*/true));
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(BlockingCall::EndsAfterPoll(/*interrupted=*/true));
  EXPECT_EQ(calls, 2);
}

TEST(WhileWaitingTest, CallsThatBlockAreRefusedInTheFunctionAndNowhereElse) {
  EXPECT_TRUE(UsersFunction::MayBlock("Run").ok());
  Status inside;
  const WhileWaiting hook = {[&] {
                               inside = UsersFunction::MayBlock("Run");
                               return true;
                             },
                             milliseconds(1)};
  const BlockingCall call(hook);
  Wait wait;
  EXPECT_EQ(wait.Until(Deadline::Infinite()), Waited::kEnded);
  EXPECT_EQ(inside.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(inside.message().find("Run was called in the function "
                                  "while_waiting"),
            std::string::npos)
      << inside.message();
  EXPECT_TRUE(UsersFunction::MayBlock("Run").ok());
}

}  // namespace
}  // namespace ringpipe
