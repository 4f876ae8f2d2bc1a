#include "engine/stream_wait.h"

#include <atomic>
#include <chrono>
#include <memory>

#include "base/deadline.h"
#include "base/while_waiting.h"
#include "gtest/gtest.h"

namespace ringpipe {
namespace {

using std::chrono::milliseconds;

// Passed at the look number `looks`, from 1; 0: never.
class CountedMark final : public StreamMark {
 public:
  explicit CountedMark(int looks) : looks_(looks) {}
  Result<bool> Passed() override {
    ++seen;
    return seen == looks_;
  }

  int seen = 0;

 private:
  const int looks_;
};

class FailedMark final : public StreamMark {
 public:
  Result<bool> Passed() override {
    return Status(StatusCode::kDeviceError, "the device is broken");
  }
};

class StreamWaitTest : public ::testing::Test {
 protected:
  Status Await(StreamMark& mark, const Timing& timing) {
    return AwaitStream(mark, *abort_, /*rank=*/3, timing);
  }

  const std::unique_ptr<AbortSignal> abort_ = AbortSignal::Create().value();
};

TEST_F(StreamWaitTest, EndsWhenTheMarkIsPassed) {
  CountedMark mark(5);
  EXPECT_TRUE(Await(mark, {}).ok());
  EXPECT_EQ(mark.seen, 5);
}

TEST_F(StreamWaitTest, EndsWithTheErrorOfTheDevice) {
  FailedMark mark;
  EXPECT_EQ(Await(mark, {}).code(), StatusCode::kDeviceError);
}

// Its own, and that of a call behind it.
TEST_F(StreamWaitTest, EndsAtTheEarliestDeadline) {
  const std::atomic<Clock::time_point> behind = Clock::now() + milliseconds(20);
  for (const Timing& timing :
       {Timing{.deadline = Deadline::After(milliseconds(20))},
        Timing{.earliest_deadline = &behind}}) {
    CountedMark mark(0);
    const Status status = Await(mark, timing);
    EXPECT_EQ(status.code(), StatusCode::kTimeout);
    EXPECT_NE(status.message().find("rank 3"), std::string::npos);
  }
}

// Not by what ends only later calls; and neither does it look more often then.
TEST_F(StreamWaitTest, EndsWhereItsCallIsAborted) {
  const Status reason(StatusCode::kPeerLost, "rank 1 is lost");
  static_cast<void>(abort_->Raise(reason, /*first=*/8));
  CountedMark mark(0);
  const auto start = Clock::now();
  EXPECT_EQ(Await(mark, {.sequence = 7,
                         .deadline = Deadline::After(milliseconds(100))})
                .code(),
            StatusCode::kTimeout);
  EXPECT_LT(mark.seen, (Clock::now() - start) / std::chrono::microseconds(40));
  EXPECT_EQ(Await(mark, {.sequence = 8}).message(), reason.message());
}

TEST_F(StreamWaitTest, EndsWhereItsCallersFunctionEndsTheCall) {
  const WhileWaiting hook = {.function = [] { return true; },
                             .interval = milliseconds(10)};
  const BlockingCall blocking(hook);
  CountedMark mark(0);
  const Status status = Await(mark, {});
  EXPECT_EQ(status.code(), StatusCode::kAborted);
  EXPECT_NE(status.message().find("while_waiting"), std::string::npos)
      << status.ToString();
}

}  // namespace
}  // namespace ringpipe
