// What docs/semantics.md says of threads: several of them use a communicator, a
// request, or a communicator each.
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_count.h"
#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

const auto kWays = ::testing::ValuesIn(WaysOf("threads_test"));
constexpr int kRanks = 3;

using std::chrono::milliseconds;

// An allreduce of its own values, of which the result is checked. Calls of
// different seeds give different results.
class Sum {
 public:
  Sum(Communicator& c, std::size_t count, int seed)
      : c_(c), seed_(seed), send_(count), receive_(count, -1) {
    for (std::size_t i = 0; i < count; ++i) {
      send_[i] = Value(c.rank(), i);
    }
  }

  Status Make() {
    RINGPIPE_RETURN_IF_ERROR(c_.AllReduce(send_.data(), receive_.data(),
                                          send_.size(), DataType::kInt64,
                                          ReduceOp::kSum));
    return Check();
  }

  Result<Request> Begin() {
    return c_.AllReduceAsync(send_.data(), receive_.data(), send_.size(),
                             DataType::kInt64, ReduceOp::kSum);
  }

  Status Check() const {
    for (std::size_t i = 0; i < receive_.size(); ++i) {
      std::int64_t expected = 0;
      for (int rank = 0; rank < c_.size(); ++rank) {
        expected += Value(rank, i);
      }
      if (receive_[i] != expected) {
        return {StatusCode::kInternal, "element " + std::to_string(i) + " is " +
                                           std::to_string(receive_[i])};
      }
    }
    return Status::Ok();
  }

 private:
  std::int64_t Value(int rank, std::size_t i) const {
    return 1'000'000LL * seed_ + 1000 * rank + static_cast<std::int64_t>(i);
  }

  Communicator& c_;
  const int seed_;
  std::vector<std::int64_t> send_;
  std::vector<std::int64_t> receive_;
};

// On a thread each; the first status that is not OK.
template <typename... Bodies>
Status AtOnce(Bodies... bodies) {
  std::vector<std::future<Status>> threads;
  (threads.push_back(std::async(std::launch::async, bodies)), ...);
  Status first;
  for (std::future<Status>& thread : threads) {
    Status status = thread.get();
    first = first.ok() ? status : first;
  }
  return first;
}

// --- A communicator ---

class ThreadsTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, ThreadsTest, kWays, NameOfWay);

// The calls are equal, so that it does not matter which thread is first.
TEST_P(ThreadsTest, CallsOfTwoRunOneAfterAnother) {
  ExpectRanks(GetParam(), kRanks, [](Communicator& c) {
    const auto body = [&c]() -> Status {
      for (int call = 0; call < 50; ++call) {
        RINGPIPE_RETURN_IF_ERROR(Sum(c, 20'000, /*seed=*/1).Make());
      }
      return Status::Ok();
    };
    return AtOnce(body, body);
  });
}

// The calls differ: in another order they would be a mismatch.
TEST_P(ThreadsTest, CallsOfTwoRunInTheOrderOfTheirMaking) {
  ExpectRanks(GetParam(), kRanks, [](Communicator& c) {
    std::mutex mutex;
    int calls = 0;
    const auto body = [&]() -> Status {
      for (;;) {
        std::unique_lock<std::mutex> lock(mutex);
        if (calls == 100) {
          return Status::Ok();
        }
        Sum sum(c, 1 + 37 * calls, calls);
        RINGPIPE_ASSIGN_OR_RETURN(Request request, sum.Begin());
        ++calls;
        lock.unlock();
        RINGPIPE_RETURN_IF_ERROR(request.Wait());
        RINGPIPE_RETURN_IF_ERROR(sum.Check());
      }
    };
    return AtOnce(body, body);
  });
}

TEST_P(ThreadsTest, AsynchronousCallsHaveOneWhichTheFirstStarts) {
  ExpectRanks(GetParam(), 1, [](Communicator& c) -> Status {
    const int before = CountThreads();
    RINGPIPE_RETURN_IF_ERROR(Sum(c, 20'000, /*seed=*/1).Make());
    EXPECT_EQ(CountThreads(), before);
    for (int call = 0; call < 2; ++call) {
      RINGPIPE_ASSIGN_OR_RETURN(Request request, c.BarrierAsync());
      RINGPIPE_RETURN_IF_ERROR(request.Wait());
      EXPECT_EQ(CountThreads(), before + 1);
    }
    return Status::Ok();
  });
}

// --- A request ---

class RequestTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, RequestTest, kWays, NameOfWay);

TEST_P(RequestTest, ACopyIsWaitedForByAnotherThreadWhenTheFirstIsGone) {
  ExpectRanks(GetParam(), 2, [](Communicator& c) -> Status {
    Sum sum(c, 50'000, /*seed=*/1);
    if (c.rank() == 1) {
      // Makes the call when rank 0 has lost its first request.
      RINGPIPE_RETURN_IF_ERROR(c.Exchange("").status());
      return sum.Make();
    }
    std::future<Status> waits;
    {
      RINGPIPE_ASSIGN_OR_RETURN(Request request, sum.Begin());
      waits = std::async(std::launch::async, [copy = request, &sum]() mutable {
        RINGPIPE_RETURN_IF_ERROR(copy.Wait());
        return sum.Check();
      });
      EXPECT_FALSE(request.Done());
    }
    const Status exchanged = c.Exchange("").status();
    const Status waited = waits.get();
    return exchanged.ok() ? waited : exchanged;
  });
}

TEST_P(RequestTest, AllCopiesHearTheSameEnd) {
  for (const bool fails : {false, true}) {
    RunRanks(GetParam(), 2, [fails](Communicator& c) -> Status {
      RINGPIPE_ASSIGN_OR_RETURN(Request request, c.BarrierAsync());
      std::vector<std::future<Status>> waits;
      for (int thread = 0; thread < 3; ++thread) {
        waits.push_back(
            std::async(std::launch::async, [copy = request]() mutable {
              Status status;
              do {
                status = copy.Wait(milliseconds(10));
              } while (status.code() == StatusCode::kWaitOver && !copy.Done());
              return copy.Wait();
            }));
      }
      const Request last = request;
      Status end = request.Wait();
      for (std::future<Status>& wait : waits) {
        EXPECT_EQ(wait.get().ToString(), end.ToString());
      }
      EXPECT_TRUE(last.Done());
      EXPECT_TRUE(end.ok()) << end.ToString();
      if (!fails) {
        return end;
      }
      // When the other rank's call has ended, too.
      RINGPIPE_RETURN_IF_ERROR(c.Exchange("").status());
      if (c.rank() == 0) {
        c.Abort("the test says so");
      }
      RINGPIPE_ASSIGN_OR_RETURN(Request failing, c.BarrierAsync());
      Request copy = failing;
      Status failure = std::async(std::launch::async, [copy]() mutable {
                         return copy.Wait();
                       }).get();
      EXPECT_EQ(failure.code(), StatusCode::kAborted) << failure.ToString();
      EXPECT_EQ(failing.Wait().ToString(), failure.ToString());
      return failure;
    });
  }
}

// --- Two communicators ---

class TwoCommunicatorsTest : public ::testing::TestWithParam<Way> {
 protected:
  using Body = std::function<Status(Communicator& first, Communicator& second)>;

  // In the second the ranks stand the other way round.
  static void Expect(const Body& body) {
    const std::string job = NewJob();
    ExpectRanks(GetParam(), kRanks, [&](Communicator& first) -> Status {
      RINGPIPE_ASSIGN_OR_RETURN(
          const auto second,
          Communicator::Create(
              RankOptions(GetParam(), kRanks - 1 - first.rank(), kRanks, job)));
      Status status = body(first, *second);
      if (!status.ok()) {
        second->Abort(status.ToString());
      }
      return status;
    });
  }
};

INSTANTIATE_TEST_SUITE_P(Ways, TwoCommunicatorsTest, kWays, NameOfWay);

TEST_P(TwoCommunicatorsTest, AreUsedAtTheSameTime) {
  Expect([](Communicator& first, Communicator& second) {
    const auto body_of = [](Communicator& c, int seed) {
      return [&c, seed]() -> Status {
        for (int call = 0; call < 50; ++call) {
          RINGPIPE_RETURN_IF_ERROR(Sum(c, 1 + 799 * call, seed + call).Make());
        }
        return Status::Ok();
      };
    };
    return AtOnce(body_of(first, 1), body_of(second, 1000));
  });
}

// Each rank has a call of both at a time, and ranks begin with another one.
TEST_P(TwoCommunicatorsTest, HaveNoOrderOfCallsInCommon) {
  Expect([](Communicator& first, Communicator& second) -> Status {
    for (int call = 0; call < 20; ++call) {
      const bool swapped = (call + first.rank()) % 2 != 0;
      Sum sums[] = {Sum(first, 20'000, call), Sum(second, 10'000, 100 + call)};
      RINGPIPE_ASSIGN_OR_RETURN(Request request, sums[swapped ? 1 : 0].Begin());
      RINGPIPE_RETURN_IF_ERROR(sums[swapped ? 0 : 1].Make());
      RINGPIPE_RETURN_IF_ERROR(request.Wait());
      RINGPIPE_RETURN_IF_ERROR(sums[swapped ? 1 : 0].Check());
    }
    return Status::Ok();
  });
}

TEST_P(TwoCommunicatorsTest, TheFailureOfOneIsNoneOfTheOther) {
  Expect([](Communicator& first, Communicator& second) -> Status {
    if (second.rank() == 0) {
      second.Abort("the test says so");
    }
    EXPECT_EQ(second.Barrier().code(), StatusCode::kAborted);
    for (int call = 0; call < 10; ++call) {
      RINGPIPE_RETURN_IF_ERROR(Sum(first, 20'000, call).Make());
    }
    EXPECT_TRUE(first.failure().ok()) << first.failure().ToString();
    return Status::Ok();
  });
}

// Rank 0 of the first makes its call of that when the others have seen the end
// of theirs of the second, which they have listed behind it.
TEST_P(TwoCommunicatorsTest, TheFirstOfTheirCallsToEndIsFound) {
  Expect([](Communicator& first, Communicator& second) -> Status {
    for (int call = 0; call < 10; ++call) {
      Sum late(first, 20'000, call), early(second, 10'000, 100 + call);
      if (first.rank() == 0) {
        RINGPIPE_RETURN_IF_ERROR(early.Make());
        RINGPIPE_RETURN_IF_ERROR(second.Barrier());
        RINGPIPE_RETURN_IF_ERROR(late.Make());
        continue;
      }
      RINGPIPE_ASSIGN_OR_RETURN(const Request a, late.Begin());
      RINGPIPE_ASSIGN_OR_RETURN(const Request b, early.Begin());
      // Also where one is listed twice, and by two threads.
      const Request requests[] = {a, b, a, b};
      auto other = std::async(std::launch::async,
                              [&] { return Request::WaitAny(requests); });
      const auto found = Request::WaitAny(requests);
      const auto found_too = other.get();
      EXPECT_TRUE(found.ok() && *found == 1) << found.status().ToString();
      EXPECT_TRUE(found_too.ok() && *found_too == 1);
      EXPECT_EQ(Request::WaitAll(requests, milliseconds(0)).code(),
                StatusCode::kWaitOver);
      EXPECT_EQ(Request::WaitAny(std::span(requests).first(1), milliseconds(0))
                    .status()
                    .code(),
                StatusCode::kWaitOver);
      RINGPIPE_RETURN_IF_ERROR(second.Barrier());
      RINGPIPE_RETURN_IF_ERROR(Request::WaitAll(requests));
      EXPECT_EQ(Request::WaitAny(requests).value(), 0U);
      RINGPIPE_RETURN_IF_ERROR(late.Check());
    }
    EXPECT_EQ(Request::WaitAny({}).status().code(),
              StatusCode::kInvalidArgument);
    EXPECT_TRUE(Request::WaitAll({}).ok());
    return Status::Ok();
  });
}

// Of several that fail the first in the list is told.
TEST_P(TwoCommunicatorsTest, OfTheirFailuresTheFirstListedIsReturned) {
  Expect([](Communicator& first, Communicator& second) -> Status {
    if (first.rank() == 0) {
      first.Abort("the first");
      second.Abort("the second");
    }
    std::vector<Request> requests;
    for (Communicator* const c : {&second, &first}) {
      auto request = c->BarrierAsync();
      if (request.ok()) {
        requests.push_back(*request);
      } else {
        EXPECT_EQ(request.status().code(), StatusCode::kAborted);
      }
    }
    // One alone is waited for as well: its rank has nothing to add to the
    // reasons.
    const Status status = Request::WaitAll(requests);
    if (requests.size() == 2) {
      EXPECT_NE(status.message().find("the second"), std::string::npos)
          << status.ToString();
      requests = {requests[1], requests[0]};
      EXPECT_NE(Request::WaitAll(requests).message().find("the first"),
                std::string::npos);
    }
    return Status::Ok();
  });
}

}  // namespace
}  // namespace ringpipe::testing
