// A caller's function that is called while its call waits: on which thread,
// what it ends, and what it may do.
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

// Rank 0's function: counts its calls, and says what it was told to.
struct Hook {
  std::atomic<int> calls = 0;
  std::function<bool()> then = [] { return false; };
  std::chrono::microseconds interval{1000};

  void GiveTo(CommunicatorOptions& options) {
    options.while_waiting = [this] {
      ++calls;
      return then();
    };
    options.while_waiting_interval = interval;
  }
  void GiveToRankZero(int rank, CommunicatorOptions& options) {
    if (rank == 0) {
      GiveTo(options);
    }
  }
  auto ForRankZero() {
    return [this](int rank, CommunicatorOptions& options) {
      GiveToRankZero(rank, options);
    };
  }
};

bool Mentions(const Status& status, const std::string& text) {
  return status.message().find(text) != std::string::npos;
}

class WhileWaitingTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, WhileWaitingTest,
                         ::testing::ValuesIn(WaysOf("while_waiting_test")),
                         NameOfWay);

TEST_P(WhileWaitingTest, IsCalledOnTheThreadOfACallThatWaits) {
  Hook hook;
  std::atomic<std::thread::id> caller;
  std::atomic<bool> calls_barrier = false;
  std::atomic<int> calls = 0;  // in the barrier
  hook.then = [&] {
    EXPECT_EQ(std::this_thread::get_id(), caller.load());
    calls += calls_barrier ? 1 : 0;
    return false;
  };
  ExpectRanks(
      GetParam(), 2,
      [&](Communicator& c) {
        if (c.rank() == 0) {
          calls_barrier = true;
          return c.Barrier();
        }
        while (calls < 3 && c.failure().ok()) {
          std::this_thread::yield();
        }
        return c.Barrier();
      },
      [&](int rank, CommunicatorOptions& options) {
        if (rank == 0) {
          caller = std::this_thread::get_id();
        }
        hook.GiveToRankZero(rank, options);
      });
}

TEST_P(WhileWaitingTest, ACallThatEndsBeforeTheIntervalDoesNotCallIt) {
  Hook hook;
  hook.interval = hours(1);
  ExpectRanks(
      GetParam(), 2,
      [](Communicator& c) -> Status {
        std::vector<float> values(100'000, 1.0F);
        for (int call = 0; call < 100; ++call) {
          RINGPIPE_RETURN_IF_ERROR(c.AllReduce(
              values.data(), values.data(), call < 50 ? 1 : values.size(),
              DataType::kFloat32, ReduceOp::kMax));
        }
        return Status::Ok();
      },
      hook.ForRankZero());
  EXPECT_EQ(hook.calls, 0);
}

TEST_P(WhileWaitingTest, IsCalledAtOnceWhenASignalHandlerHasRun) {
  struct sigaction action = {};
  action.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGUSR1, &action, nullptr), 0);
  Hook hook;
  hook.interval = hours(1);
  std::atomic<pthread_t> caller = {};
  ExpectRanks(
      GetParam(), 2,
      [&](Communicator& c) {
        if (c.rank() == 0) {
          caller = pthread_self();
          return c.Barrier();
        }
        // It is not known when that thread sleeps.
        for (; hook.calls == 0 && c.failure().ok(); std::this_thread::yield()) {
          if (caller.load() != pthread_t()) {
            pthread_kill(caller, SIGUSR1);
          }
        }
        return c.Barrier();
      },
      hook.ForRankZero());
}

// Rank 0 makes a call that ends by its function; the others wait in a barrier.
void ExpectItEnds(Way way, const std::function<Status(Communicator&)>& call,
                  const std::string& named) {
  Hook hook;
  std::atomic<bool> ends = false;
  hook.then = [&] { return ends.load(); };
  const std::vector<Status> statuses = RunRanks(
      way, 3,
      [&](Communicator& c) {
        if (c.rank() == 0) {
          ends = true;
          return call(c);
        }
        return c.rank() == 1 ? c.Barrier() : [&] {
          while (c.failure().ok()) {
            std::this_thread::yield();
          }
          return c.Barrier();
        }();
      },
      hook.ForRankZero());
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kAborted) << status.ToString();
    EXPECT_TRUE(
        Mentions(status, "rank 0's function while_waiting has ended " + named))
        << status.ToString();
  }
}

TEST_P(WhileWaitingTest, EndsTheCommunicatorOnAllRanksByTheCallThatWaits) {
  ExpectItEnds(
      GetParam(), [](Communicator& c) { return c.Barrier(); }, "call number 0");
}

TEST_P(WhileWaitingTest, EndsACallThatWaitsForItsTurn) {
  ExpectItEnds(
      GetParam(),
      [](Communicator& c) {
        // It waits on a thread of its own, which has no such function.
        auto first = c.BarrierAsync();
        EXPECT_TRUE(first.ok());
        Status second = c.Barrier();
        EXPECT_EQ(first->Wait().code(), StatusCode::kAborted);
        return second;
      },
      "a call that waited for its turn");
}

TEST_P(WhileWaitingTest, EndsAnExchange) {
  ExpectItEnds(
      GetParam(), [](Communicator& c) { return c.Exchange("blob").status(); },
      "a call that waited for other ranks");
}

TEST_P(WhileWaitingTest, EndsAnExchangeThatWaitsForItsTurn) {
  // Either of the two may be the first.
  ExpectItEnds(
      GetParam(),
      [](Communicator& c) {
        std::thread other([&] { (void)c.Exchange("blob"); });
        Status status = c.Exchange("blob").status();
        other.join();
        return status;
      },
      "a call that waited for ");
}

TEST_P(WhileWaitingTest, EndsAWaitAlone) {
  Hook hook;
  std::atomic<bool> ends = false;
  std::atomic<int> ended = 0;
  hook.then = [&] { return ends.load(); };
  ExpectRanks(
      GetParam(), 2,
      [&](Communicator& c) -> Status {
        if (c.rank() == 0) {
          ends = true;
          RINGPIPE_ASSIGN_OR_RETURN(Request request, c.BarrierAsync());
          EXPECT_EQ(request.Wait().code(), StatusCode::kInterrupted);
          ++ended;
          EXPECT_EQ(Request::WaitAll({&request, 1}).code(),
                    StatusCode::kInterrupted);
          ++ended;
          EXPECT_EQ(Request::WaitAny({&request, 1}).status().code(),
                    StatusCode::kInterrupted);
          EXPECT_FALSE(request.Done());
          ends = false;
          ++ended;
          return request.Wait();
        }
        while (ended < 3 && c.failure().ok()) {
          std::this_thread::yield();
        }
        return c.Barrier();
      },
      hook.ForRankZero());
}

TEST_P(WhileWaitingTest, EndsTheCreation) {
  for (const int rank : {0, 1}) {
    Hook hook;
    hook.then = [&] { return hook.calls == 3; };
    CommunicatorOptions options = RankOptions(GetParam(), rank, 2, NewJob());
    hook.GiveTo(options);
    const auto communicator = Communicator::Create(options);
    EXPECT_EQ(communicator.status().code(), StatusCode::kAborted);
    EXPECT_TRUE(Mentions(
        communicator.status(),
        "rank " + std::to_string(rank) + "'s function while_waiting has ended"))
        << communicator.status().ToString();
    EXPECT_EQ(hook.calls, 3);
  }
}

// What rank 0 warns of, whose destructor waits for rank 1 until its function
// ends that.
std::string WarningsOfADestructor(Way way) {
  Hook hook;
  std::atomic<bool> ends = false, destroyed = false;
  hook.then = [&] { return ends.load(); };
  std::mutex mutex;
  std::string warnings;
  const std::string job = NewJob();
  std::thread other([&] {
    auto c = Communicator::Create(RankOptions(way, 1, 2, job));
    EXPECT_TRUE(c.ok()) << c.status().ToString();
    while (!destroyed) {
      std::this_thread::yield();
    }
  });
  CommunicatorOptions options = RankOptions(way, 0, 2, job);
  options.environment.log_level = LogLevel::kWarning;
  options.log = [&](LogLevel, std::string_view line) {
    const std::lock_guard<std::mutex> lock(mutex);
    warnings += line;
  };
  hook.GiveTo(options);
  auto c = Communicator::Create(options);
  EXPECT_TRUE(c.ok()) << c.status().ToString();
  ends = true;
  if (c.ok()) {
    c->reset();
  }
  destroyed = true;
  other.join();
  return warnings;
}

TEST_P(WhileWaitingTest, EndsTheWaitOfTheDestructor) {
  constexpr int kJobs = 3;
  std::string warnings = WarningsOfADestructor(GetParam());
  // Where it got no core for as long as it waits by itself.
  for (int job = 1;
       job < kJobs && warnings.find("any longer for") != std::string::npos;
       ++job) {
    warnings = WarningsOfADestructor(GetParam());
  }
  EXPECT_NE(warnings.find("without waiting for the other ranks: rank 0's "
                          "function while_waiting"),
            std::string::npos)
      << warnings;
}

TEST_P(WhileWaitingTest, MayStartCallsAndLookAtThemButNotWait) {
  Hook hook;
  Communicator* own = nullptr;
  std::vector<Request> started;
  std::atomic<bool> looked = false;
  const auto expect_refused = [](const Status& status, const char* call) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(Mentions(status, std::string(call) +
                                     " was called in the function "
                                     "while_waiting"))
        << status.ToString();
  };
  hook.then = [&] {
    if (own == nullptr || !started.empty()) {
      return false;
    }
    auto request = own->BarrierAsync();
    EXPECT_TRUE(request.ok());
    EXPECT_FALSE(request->Done());
    started.push_back(*request);
    expect_refused(own->Barrier(), "Run (ringpipe_run)");
    expect_refused(own->Exchange("").status(), "Exchange (ringpipe_exchange)");
    expect_refused(request->Wait(), "Request::Wait (ringpipe_wait)");
    expect_refused(Request::WaitAll(started),
                   "Request::WaitAll (ringpipe_wait_all)");
    expect_refused(Request::WaitAny(started).status(),
                   "Request::WaitAny (ringpipe_wait_any)");
    expect_refused(Communicator::Create({}).status(),
                   "Create (ringpipe_create)");
    looked = true;
    return false;
  };
  ExpectRanks(
      GetParam(), 2,
      [&](Communicator& c) -> Status {
        if (c.rank() == 0) {
          own = &c;
          RINGPIPE_RETURN_IF_ERROR(c.Barrier());
          EXPECT_EQ(started.size(), 1U);
          return started[0].Wait();
        }
        while (!looked && c.failure().ok()) {
          std::this_thread::yield();
        }
        RINGPIPE_RETURN_IF_ERROR(c.Barrier());
        return c.Barrier();
      },
      hook.ForRankZero());
}

TEST(WhileWaitingOptionsTest, TheIntervalIsPositive) {
  CommunicatorOptions options = RankOptions(Way::kHostMemory, 0, 1, NewJob());
  options.while_waiting_interval = milliseconds(0);
  EXPECT_EQ(Communicator::Create(options).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ringpipe::testing
