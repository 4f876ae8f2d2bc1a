// Each allocation of a call in turn fails: the call ends with an error, its
// peer hears of it, and everything can be destroyed. So do those of the
// library's threads, where the job may lose what they were doing.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/failing_memory.h"
#include "base/liveness_bound.h"
#include "engine/ringpipe.h"
#include "gtest/gtest.h"
#include "tests/create_in_c.h"
#include "tests/holdings.h"
#include "tests/rank_processes.h"
#include "tests/rank_threads.h"

namespace {

// Of all threads of that name (nullptr: of none), one allocation fails.
std::atomic<const char*> watched_threads = nullptr;
std::atomic<long> watched_allocations_left = 0;
// All of all threads.
std::atomic<bool> all_fail = false;

bool IsWatched() {
  const char* const watched = watched_threads;
  char name[16] = "";
  return watched != nullptr &&
         pthread_getname_np(pthread_self(), name, sizeof name) == 0 &&
         std::strcmp(name, watched) == 0;
}

bool AllocationFails() {
  return all_fail || (IsWatched() && watched_allocations_left-- == 0);
}

}  // namespace

// What std::random_device does where the system gives it nothing.
std::atomic<bool> random_fails = false;

std::random_device::result_type std::random_device::_M_getval() {
  if (random_fails) {
    throw std::runtime_error("the system has nothing random");
  }
  result_type value = 0;
  return getentropy(&value, sizeof value) == 0 ? value : 0;
}

namespace ringpipe::testing {
namespace {

constexpr std::size_t kCount = 100'000;
constexpr long kMost = 5'000;  // a call has fewer allocations
// Of those of the library's threads only each so many-eth fails.
constexpr const char* kStrideVariable = "TEST_STRIDE";

// kInPieces: asynchronous, of a list of two pieces. kWithEnd: asynchronous,
// with a function at its end.
enum class Kind { kBlocking, kAsynchronous, kInPieces, kWithEnd };

Status Sum(Communicator& communicator, Kind kind, std::vector<float>& data) {
  if (kind == Kind::kBlocking) {
    return communicator.AllReduce(data.data(), data.data(), kCount,
                                  DataType::kFloat32, ReduceOp::kSum);
  }
  const std::array<Buffer, 2> list = {
      {{data.data(), 1}, {data.data() + 1, kCount - 1}}};
  Call call = {.collective = Collective::kAllReduce,
               .send = data.data(),
               .receive = data.data(),
               .count = kCount,
               .type = DataType::kFloat32};
  if (kind == Kind::kInPieces) {
    call.send = call.receive = nullptr;
    call.send_list = call.receive_list = list;
  }
  std::atomic<int> ends = 0;
  Result<Request> request =
      kind == Kind::kWithEnd
          ? communicator.Start(call, [&ends](const Status&) { ++ends; })
          : communicator.Start(call);
  if (!request.ok()) {
    EXPECT_EQ(ends, 0);
    return request.status();
  }
  Status status = request->Wait();
  while (kind == Kind::kWithEnd && ends == 0) {
    std::this_thread::yield();
  }
  return status;
}

const auto kWays = ::testing::ValuesIn(WaysOf("allocation_failure_test"));

// (the way, the kind of call)
class AllocationFailure
    : public ::testing::TestWithParam<std::tuple<Way, Kind>> {};

INSTANTIATE_TEST_SUITE_P(
    Ways, AllocationFailure,
    ::testing::Combine(kWays,
                       ::testing::Values(Kind::kBlocking, Kind::kAsynchronous,
                                         Kind::kInPieces, Kind::kWithEnd)),
    [](const auto& info) {
      const Kind kind = std::get<1>(info.param);
      return std::string(Name(std::get<0>(info.param))) +
             (kind == Kind::kBlocking       ? "_blocking"
              : kind == Kind::kAsynchronous ? "_asynchronous"
              : kind == Kind::kInPieces     ? "_in_pieces"
                                            : "_with_end");
    });

TEST_P(AllocationFailure, OfACallFailsTheCommunicator) {
  const auto [way, kind] = GetParam();
  bool failed = true;
  long which = 0;
  for (; failed && which < kMost; ++which) {
    const std::vector<Status> statuses =
        RunRanks(way, 2, [&, kind = kind](Communicator& c) {
          std::vector<float> data(kCount, 1);
          if (c.rank() != 0) {
            return Sum(c, Kind::kBlocking, data);
          }
          Status status;
          failed = FailOne(which, [&] { status = Sum(c, kind, data); });
          return status;
        });
    for (const Status& status : statuses) {
      EXPECT_EQ(status.code(),
                failed ? StatusCode::kResourceExhausted : StatusCode::kOk)
          << "allocation " << which << ": " << status.ToString();
    }
  }
  EXPECT_GT(which, 1);
  EXPECT_LT(which, kMost);
}

class AllocationFailureTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, AllocationFailureTest, kWays, NameOfWay);

TEST_P(AllocationFailureTest, OfAllThatComeIsAnErrorOfTheCallToo) {
  bool failed = true;
  long which = 0;
  for (; failed && which < kMost; ++which) {
    const auto body = [&](Communicator& c) {
      std::vector<float> data(kCount, 1);
      if (c.rank() != 0) {
        return Sum(c, Kind::kBlocking, data);
      }
      StatusCode code = StatusCode::kOk;
      failed = FailAllFrom(
          which, [&] { code = Sum(c, Kind::kBlocking, data).code(); });
      EXPECT_EQ(code, failed ? StatusCode::kResourceExhausted : StatusCode::kOk)
          << "from allocation " << which;
      return Status(code, "");
    };
    const std::vector<Status> statuses = RunRanks(GetParam(), 2, body);
    EXPECT_EQ(statuses[1].code(),
              failed ? StatusCode::kResourceExhausted : StatusCode::kOk)
        << statuses[1].ToString();
  }
  EXPECT_GT(which, 1);
  EXPECT_LT(which, kMost);
}

ringpipe_status SumInC(ringpipe_communicator* communicator, Kind kind,
                       std::vector<float>& data) {
  ringpipe_request* request = nullptr;
  ringpipe_status status = RINGPIPE_OK;
  std::atomic<int> ends = 0;
  if (kind == Kind::kWithEnd) {
    ringpipe_call call = {};
    call.struct_size = sizeof call;
    call.collective = RINGPIPE_ALL_REDUCE;
    call.send = call.receive = data.data();
    call.count = kCount;
    call.data_type = RINGPIPE_FLOAT32;
    call.ended = [](ringpipe_status, void* context) {
      ++*static_cast<std::atomic<int>*>(context);
    };
    call.ended_context = &ends;
    status = ringpipe_start(communicator, &call, &request);
  } else if (kind == Kind::kInPieces) {
    const ringpipe_buffer list[] = {{data.data(), 1},
                                    {data.data() + 1, kCount - 1}};
    ringpipe_call call = {};
    call.struct_size = sizeof call;
    call.collective = RINGPIPE_ALL_REDUCE;
    call.count = kCount;
    call.data_type = RINGPIPE_FLOAT32;
    call.send_list = call.receive_list = list;
    call.send_list_length = call.receive_list_length = 2;
    status = ringpipe_start(communicator, &call, &request);
  } else {
    status = ringpipe_all_reduce(communicator, data.data(), data.data(), kCount,
                                 RINGPIPE_FLOAT32, RINGPIPE_SUM,
                                 RINGPIPE_DEFAULT_TIMEOUT,
                                 kind == Kind::kBlocking ? nullptr : &request);
  }
  if (request != nullptr) {
    status = ringpipe_wait(request, RINGPIPE_DEFAULT_TIMEOUT);
    ringpipe_request_free(request);
    while (kind == Kind::kWithEnd && ends == 0) {
      std::this_thread::yield();
    }
  }
  return status;
}

TEST_P(AllocationFailure, OfACallInCIsItsStatusOnBothRanks) {
  const auto [way, kind] = GetParam();
  const WayOfThisProcess set(way);
  bool failed = true;
  long which = 0;
  for (; failed && which < kMost; ++which) {
    const std::string job = NewJob();
    std::vector<float> all[] = {std::vector<float>(kCount, 1),
                                std::vector<float>(kCount, 1)};
    const auto sum = [&all](ringpipe_communicator* communicator, Kind kind) {
      return SumInC(communicator, kind, all[ringpipe_rank(communicator)]);
    };
    auto other = std::async(std::launch::async, [&] {
      ringpipe_communicator* const communicator = CreateInC(1, 2, job);
      const ringpipe_status status = sum(communicator, Kind::kBlocking);
      ringpipe_destroy(communicator);
      return status;
    });
    ringpipe_communicator* const own = CreateInC(0, 2, job);
    ringpipe_status status = RINGPIPE_OK;
    failed = FailOne(which, [&, kind = kind] { status = sum(own, kind); });
    EXPECT_EQ(status, failed ? RINGPIPE_RESOURCE_EXHAUSTED : RINGPIPE_OK);
    if (failed) {
      EXPECT_NE(std::string(ringpipe_error_message()).find("memory"),
                std::string::npos)
          << ringpipe_error_message();
    }
    ringpipe_destroy(own);
    EXPECT_EQ(other.get(), status);
  }
  EXPECT_GT(which, 1);
  EXPECT_LT(which, kMost);
}

TEST_P(AllocationFailureTest, OfAnExchangeEndsItOnBothRanks) {
  bool failed = true;
  long which = 0;
  for (; failed && which < kMost; ++which) {
    const std::vector<Status> statuses =
        RunRanks(GetParam(), 2, [&](Communicator& c) {
          const std::string blob(100, 'x');
          if (c.rank() != 0) {
            return c.Exchange(blob).status();
          }
          Status status;
          failed = FailOne(which, [&] { status = c.Exchange(blob).status(); });
          return status;
        });
    for (const Status& status : statuses) {
      EXPECT_EQ(status.code(),
                failed ? StatusCode::kResourceExhausted : StatusCode::kOk)
          << "allocation " << which << ": " << status.ToString();
    }
  }
  EXPECT_GT(which, 1);
  EXPECT_LT(which, kMost);
}

TEST_P(AllocationFailureTest, OfARegistrationLeavesTheMemoryUnregistered) {
  std::vector<float> data(kCount);
  ExpectRanks(GetParam(), 1, [&](Communicator& c) {
    bool failed = true;
    long which = 0;
    for (; failed && which < kMost; ++which) {
      Status status;
      failed = FailOne(which, [&] {
        status = c.Register(data.data(), kCount * sizeof(float));
      });
      if (failed) {
        EXPECT_EQ(status.code(), StatusCode::kResourceExhausted)
            << status.ToString();
        RINGPIPE_RETURN_IF_ERROR(
            c.Register(data.data(), kCount * sizeof(float)));
      }
      RINGPIPE_RETURN_IF_ERROR(c.Deregister(data.data()));
    }
    EXPECT_GT(which, 1);
    EXPECT_LT(which, kMost);
    return Status();
  });
}

TEST_P(AllocationFailureTest, OfAnAllocationOrItsEndIsAStatus) {
  ExpectRanks(GetParam(), 1, [&](Communicator& c) {
    FailEach([&c] { return c.Allocate(kCount).status(); });
    FailEach([] { return CommunicatorOptions::FromProcess().status(); });
    Status status;
    EXPECT_TRUE(FailOne(0, [&] { status = c.Free(&c); }));
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_TRUE(FailOne(0, [&] { status = c.Deregister(&c); }));
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    return c.failure();
  });
}

TEST_P(AllocationFailureTest, OfADescriptionLeavesItEmpty) {
  ExpectRanks(GetParam(), 1, [&](Communicator& c) {
    std::string device = "a device";
    EXPECT_TRUE(FailAllFrom(0, [&] { device = c.device(); }));
    EXPECT_EQ(device, "");
    std::vector<StageCounters> counters(1);
    EXPECT_TRUE(FailAllFrom(0, [&] { counters = c.stage_counters(); }));
    EXPECT_TRUE(counters.empty());
    return c.failure();
  });
}

// Who took it for the call's end would give the buffers away.
TEST_P(AllocationFailureTest, OfAWaitThatExpiresIsStillOneThatHas) {
  const auto body = [](Communicator& c) -> Status {
    if (c.rank() == 0) {
      RINGPIPE_ASSIGN_OR_RETURN(Request request, c.BarrierAsync());
      StatusCode code = StatusCode::kOk;
      FailAllFrom(
          0, [&] { code = request.Wait(std::chrono::milliseconds(0)).code(); });
      EXPECT_EQ(code, StatusCode::kWaitOver);
      RINGPIPE_RETURN_IF_ERROR(c.Exchange("").status());
      return request.Wait();
    }
    RINGPIPE_RETURN_IF_ERROR(c.Exchange("").status());
    return c.Barrier();
  };
  ExpectRanks(GetParam(), 2, body);
}

// Of the software device's, and of the trace's.
TEST_P(AllocationFailureTest, OfTheRandomDeviceIsAStatusOfTheCreation) {
  for (const std::string& trace :
       {std::string(), ::testing::TempDir() + "trace"}) {
    CommunicatorOptions options = RankOptions(GetParam(), 0, 1, NewJob());
    options.environment.trace = trace;
    random_fails = true;
    const Status status = Communicator::Create(options).status();
    random_fails = false;
    EXPECT_NE(status.message().find("the system has nothing random"),
              std::string::npos)
        << status.ToString();
  }
}

// --- An abort needs no memory

constexpr std::chrono::seconds kPatience(60);
constexpr const char* kWhy = "a reason too long to lie in a string itself";

TEST_P(AllocationFailureTest, OfAnAbortInCTakesAtMostTheReasonFromThePeer) {
  const WayOfThisProcess way(GetParam());
  bool failed = true;
  long which = 0;
  for (; failed && which < kMost; ++which) {
    const std::string job = NewJob();
    auto other = std::async(std::launch::async, [&] {
      ringpipe_communicator* const communicator = CreateInC(1, 2, job);
      const ringpipe_status status =
          ringpipe_barrier(communicator, RINGPIPE_DEFAULT_TIMEOUT, nullptr);
      const std::string message = ringpipe_error_message();
      ringpipe_destroy(communicator);
      return std::pair(status, message);
    });
    ringpipe_communicator* const own = CreateInC(0, 2, job);
    const auto start = std::chrono::steady_clock::now();
    failed = FailAllFrom(which, [&] { ringpipe_abort(own, kWhy); });
    const auto [status, message] = other.get();
    EXPECT_LT(std::chrono::steady_clock::now() - start,
              LivenessBound(std::chrono::seconds(1)));
    EXPECT_EQ(status, RINGPIPE_ABORTED) << "from allocation " << which;
    EXPECT_NE(message.find("rank 0 aborted the communicator"),
              std::string::npos)
        << message;
    EXPECT_TRUE(failed || message.find(kWhy) != std::string::npos) << message;
    ringpipe_destroy(own);
  }
  EXPECT_GT(which, 1);
  EXPECT_LT(which, kMost);
}

int AbortWithoutMemory(Way) {
  ringpipe_communicator* communicator = nullptr;
  if (ringpipe_create(nullptr, &communicator) != RINGPIPE_OK) {
    Print(ringpipe_error_message());
    return 1;
  }
  Print("joined");
  AwaitGo();
  all_fail = true;
  ringpipe_abort(communicator, kWhy);
  AwaitGo();  // the peers are to hear of it from a rank that lives on
  _exit(0);
}

// (the way, the rank that aborts)
class AbortWithoutMemoryTest
    : public ::testing::TestWithParam<std::tuple<Way, int>> {};

INSTANTIATE_TEST_SUITE_P(Ways, AbortWithoutMemoryTest,
                         ::testing::Combine(kWays, ::testing::Values(0, 1, 2)),
                         [](const auto& info) {
                           return std::string(Name(std::get<0>(info.param))) +
                                  "_rank" +
                                  std::to_string(std::get<1>(info.param));
                         });

// One of them is in a call, and one in none.
TEST_P(AbortWithoutMemoryTest, ReachesAllOtherRanks) {
  constexpr int kRanks = 3;
  const Way way = std::get<0>(GetParam());
  const int victim_rank = std::get<1>(GetParam());
  const std::string job = NewJob();
  RankProcess victim(way, "abort", victim_rank, kRanks, job);
  std::vector<std::future<Status>> others;
  for (const int step : {1, 2}) {
    others.push_back(std::async(std::launch::async, [=] {
      auto communicator = Communicator::Create(
          RankOptions(way, (victim_rank + step) % kRanks, kRanks, job));
      if (!communicator.ok()) {
        return communicator.status();
      }
      if (step == 1) {
        return (*communicator)->Barrier();
      }
      const auto end = std::chrono::steady_clock::now() + kPatience;
      while ((*communicator)->failure().ok() &&
             std::chrono::steady_clock::now() < end) {
        std::this_thread::yield();
      }
      return (*communicator)->failure();
    }));
  }
  ASSERT_EQ(victim.ReadLine(kPatience), "joined");
  const auto start = std::chrono::steady_clock::now();
  victim.Go();
  for (std::future<Status>& other : others) {
    const Status told = other.get();
    EXPECT_TRUE(told.code() == StatusCode::kAborted ||
                told.code() == StatusCode::kPeerLost)
        << told.ToString();
    EXPECT_NE(told.message().find("rank " + std::to_string(victim_rank)),
              std::string::npos)
        << told.ToString();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start,
            LivenessBound(std::chrono::seconds(1)));
  victim.Go();
  EXPECT_EQ(victim.Wait(kPatience), 0);
}

// --- The library's threads

struct ThreadsCase {
  Way way;
  const char* threads;  // the name of the threads
  int hosts;            // on how many the ranks believe that they are
};

class ThreadsAllocationFailure : public ::testing::TestWithParam<ThreadsCase> {
};

std::vector<ThreadsCase> ThreadsCases() {
  std::vector<ThreadsCase> cases;
  for (const Way way : WaysOf("allocation_failure_test")) {
    cases.push_back({way, "ringpipe-boot", 1});
    cases.push_back({way, "ringpipe-calls", 1});
    cases.push_back({way, "ringpipe-tcp", 2});
    if (!SharesMemory(way)) {  // which needs no device on one host
      cases.push_back({way, "ringpipe-soft0", 1});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Ways, ThreadsAllocationFailure,
                         ::testing::ValuesIn(ThreadsCases()),
                         [](const auto& info) {
                           return std::string(Name(info.param.way)) + "_" +
                                  (info.param.threads +
                                   std::string_view("ringpipe-").size());
                         });

// Of two ranks, each of whose threads may be the one.
std::vector<Status> RunJob(Way way, int hosts, int timeout_ms) {
  return RunRanks(
      way, 2,
      [](Communicator& communicator) {
        std::vector<float> data(kCount, 1);
        RINGPIPE_RETURN_IF_ERROR(Sum(communicator, Kind::kAsynchronous, data));
        EXPECT_EQ(data, std::vector<float>(kCount, 2));
        return Status();
      },
      [=](int rank, CommunicatorOptions& options) {
        options.environment.host_id = "host " + std::to_string(rank % hosts);
        options.environment.secret = "of both hosts";
        options.environment.timeout_ms = timeout_ms;
        options.environment.join_timeout_ms = timeout_ms;
      });
}

TEST_P(ThreadsAllocationFailure, EndsNoProcessHangsNobodyAndLeavesNothing) {
  const auto [way, threads, hosts] = GetParam();
  // Makes what lasts as long as the process.
  for (const Status& status : RunJob(way, hosts, 10'000)) {
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  bool failed = true;
  long which = 0;
  const char* const every = std::getenv(kStrideVariable);
  const int stride = every != nullptr ? std::atoi(every) : 1;
  int failures = 0;
  int timeout_ms = 300;
  while (failed && which < kMost) {
    SCOPED_TRACE("allocation " + std::to_string(which));
    const Holdings before;
    const auto start = std::chrono::steady_clock::now();
    watched_allocations_left = which;
    watched_threads = threads;
    const std::vector<Status> statuses = RunJob(way, hosts, timeout_ms);
    watched_threads = nullptr;
    failed = watched_allocations_left < 0;
    EXPECT_LT(std::chrono::steady_clock::now() - start,
              LivenessBound(std::chrono::seconds(3)));
    EXPECT_EQ(WhatIsLeft(before), "");
    if (!failed && !std::all_of(statuses.begin(), statuses.end(),
                                std::mem_fn(&Status::ok))) {
      failed = true;  // the time was too short to come so far: again
      timeout_ms *= 2;
      ASSERT_LT(timeout_ms, 10'000);
      continue;
    }
    failures += failed ? 1 : 0;
    which += stride;
  }
  EXPECT_GT(failures, 0);
  EXPECT_LT(which, kMost);
}

TEST_P(AllocationFailureTest, OfTheDestructionEndsNoProcess) {
  bool failed = true;
  long which = 0;
  for (; failed && which < kMost; ++which) {
    const std::string job = NewJob();
    // It leaves second: who does so need not allocate anything.
    auto other = std::async(std::launch::async, [&] {
      const auto created =
          Communicator::Create(RankOptions(GetParam(), 1, 2, job));
      const Deadline deadline = Deadline::After(std::chrono::seconds(10));
      while (created.ok() && created.value()->lost_ranks().value().empty() &&
             !deadline.expired()) {
        std::this_thread::yield();
      }
      return created.status();
    });
    auto own = Communicator::Create(RankOptions(GetParam(), 0, 2, job));
    ASSERT_TRUE(own.ok()) << own.status().ToString();
    failed = FailOne(which, [&] { own.value().reset(); });
    EXPECT_TRUE(other.get().ok());
  }
  EXPECT_GT(which, 1);
  EXPECT_LT(which, kMost);
}

}  // namespace
}  // namespace ringpipe::testing

int main(int argc, char** argv) {
  using namespace ringpipe::testing;  // NOLINT(google-build-using-namespace)
  ringpipe::SetAllocationFailure(&AllocationFails);
  return RunRoleOrTests(argc, argv, {{"abort", &AbortWithoutMemory}});
}
