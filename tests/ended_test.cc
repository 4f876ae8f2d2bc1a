// A caller's function at the end of an asynchronous call: that it is called
// once for each, however the call and the communicator end, and what it may do.
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

// The codes with which calls have ended.
struct Ends {
  std::atomic<int> ok = 0, aborted = 0, others = 0;

  auto Counter() {
    return [this](const Status& status) {
      ++(status.ok()                             ? ok
         : status.code() == StatusCode::kAborted ? aborted
                                                 : others);
    };
  }
};

const Call kBarrier = {.collective = Collective::kBarrier};

class EndedTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, EndedTest,
                         ::testing::ValuesIn(WaysOf("ended_test")), NameOfWay);

TEST_P(EndedTest, IsCalledOnceForEachCallOnAThreadOfTheCommunicator) {
  constexpr int kCalls = 20;
  std::vector<Ends> ends(2);
  ExpectRanks(GetParam(), 2, [&](Communicator& c) -> Status {
    const auto caller = std::this_thread::get_id();
    for (int call = 0; call < kCalls; ++call) {
      auto count = ends[c.rank()].Counter();
      // The request is dropped at once.
      RINGPIPE_RETURN_IF_ERROR(
          c.Start(kBarrier, [count, caller](const Status& status) {
             EXPECT_NE(std::this_thread::get_id(), caller);
             count(status);
           }).status());
    }
    // Behind the last of them, on the same thread.
    RINGPIPE_ASSIGN_OR_RETURN(Request last, c.Start(kBarrier));
    RINGPIPE_RETURN_IF_ERROR(last.Wait());
    EXPECT_EQ(ends[c.rank()].ok, kCalls);
    return Status::Ok();
  });
  for (const Ends& end : ends) {
    EXPECT_EQ(end.ok, kCalls);
    EXPECT_EQ(end.aborted + end.others, 0);
  }
}

TEST_P(EndedTest, IsCalledForWhatAnAbortEnds) {
  Ends ends;
  const std::vector<Status> statuses =
      RunRanks(GetParam(), 2, [&](Communicator& c) -> Status {
        if (c.rank() == 0) {
          for (int call = 0; call < 5; ++call) {
            RINGPIPE_RETURN_IF_ERROR(
                c.Start(kBarrier, ends.Counter()).status());
          }
          c.Abort("the test ends here");
          // It has not begun.
          EXPECT_EQ(c.Start(kBarrier, [](const Status&) { ADD_FAILURE(); })
                        .status()
                        .code(),
                    StatusCode::kAborted);
        }
        while (c.failure().ok()) {
          std::this_thread::yield();
        }
        return c.Barrier();
      });
  EXPECT_EQ(ends.aborted, 5);
  EXPECT_EQ(ends.ok + ends.others, 0);
}

TEST_P(EndedTest, IsCalledBeforeTheDestructorReturns) {
  Ends ends;
  RunRanks(GetParam(), 2, [&](Communicator& c) -> Status {
    if (c.rank() == 0) {
      for (int call = 0; call < 5; ++call) {
        RINGPIPE_RETURN_IF_ERROR(c.Start(kBarrier, ends.Counter()).status());
      }
      return Status::Ok();  // and destroys it
    }
    while (c.failure().ok()) {
      std::this_thread::yield();
    }
    return Status::Ok();
  });
  EXPECT_EQ(ends.aborted, 5);
}

TEST_P(EndedTest, IsNotCalledForACallThatIsRefused) {
  ExpectRanks(GetParam(), 2, [](Communicator& c) {
    float value = 0;
    const auto started = c.Start({.collective = Collective::kAllReduce,
                                  .receive = &value,
                                  .count = 1,
                                  .type = DataType::kFloat32},
                                 [](const Status&) { ADD_FAILURE(); });
    EXPECT_EQ(started.status().code(), StatusCode::kInvalidArgument);
    return c.Barrier();
  });
}

TEST_P(EndedTest, MayStartCallsAndLookAtThemButNotWait) {
  ExpectRanks(GetParam(), 2, [](Communicator& c) -> Status {
    std::optional<Request> second;
    std::atomic<bool> looked = false;
    const auto expect_refused = [](const Status& status) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_NE(status.message().find("was called in the function ended"),
                std::string::npos)
          << status.ToString();
    };
    RINGPIPE_ASSIGN_OR_RETURN(
        Request first, c.Start(kBarrier, [&](const Status& status) {
          EXPECT_TRUE(status.ok());
          auto started = c.Start(kBarrier);
          EXPECT_TRUE(started.ok()) << started.status().ToString();
          second = *started;
          EXPECT_FALSE(second->Done());
          expect_refused(c.Barrier());
          expect_refused(second->Wait());
          expect_refused(Request::WaitAll({&*second, 1}));
          expect_refused(Request::WaitAny({&*second, 1}).status());
          expect_refused(c.Exchange("").status());
          expect_refused(Communicator::Create({}).status());
          looked = true;
        }));
    while (!looked) {
      std::this_thread::yield();
    }
    RINGPIPE_RETURN_IF_ERROR(first.Wait());
    return second->Wait();
  });
}

TEST_P(EndedTest, MayAbort) {
  const std::vector<Status> statuses =
      RunRanks(GetParam(), 2, [](Communicator& c) -> Status {
        if (c.rank() == 0) {
          RINGPIPE_RETURN_IF_ERROR(c.Start(kBarrier, [&](const Status&) {
                                      c.Abort("enough");
                                    }).status());
        } else {
          RINGPIPE_RETURN_IF_ERROR(c.Barrier());
        }
        for (;;) {
          RINGPIPE_RETURN_IF_ERROR(c.Barrier());
        }
      });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kAborted);
    EXPECT_NE(status.message().find("enough"), std::string::npos);
  }
}

}  // namespace
}  // namespace ringpipe::testing
