// Each allocation of a call in turn fails: the call ends with an error, its
// peer hears of it, and everything can be destroyed. So do those of the
// library's threads, where the job may lose what they were doing.
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <new>
#include <string>
#include <tuple>
#include <vector>

#include "base/liveness_bound.h"
#include "engine/ringpipe.h"
#include "gtest/gtest.h"
#include "tests/connections.h"
#include "tests/holdings.h"
#include "tests/rank_threads.h"

namespace {

// Of this thread: how many allocations succeed before one fails; -1: all do.
thread_local long allocations_left = -1;
// All after that one fail, too; whether there was one.
thread_local bool for_good = false;
thread_local bool failed_for_good = false;
// The same of all threads of that name; nullptr: of none.
std::atomic<const char*> watched_threads = nullptr;
std::atomic<long> watched_allocations_left = 0;

bool IsWatched() {
  const char* const watched = watched_threads;
  char name[16] = "";
  return watched != nullptr &&
         pthread_getname_np(pthread_self(), name, sizeof name) == 0 &&
         std::strcmp(name, watched) == 0;
}

bool AllocationFails() {
  if (allocations_left == 0 && for_good) {
    failed_for_good = true;
    return true;
  }
  return (allocations_left >= 0 && allocations_left-- == 0) ||
         (IsWatched() && watched_allocations_left-- == 0);
}

}  // namespace

void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return AllocationFails() ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
}

void* operator new(std::size_t bytes) {
  if (void* memory = operator new(bytes, std::nothrow)) {
    return memory;
  }
  throw std::bad_alloc();
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace ringpipe::testing {
namespace {

constexpr std::size_t kCount = 100'000;
constexpr long kMost = 5'000;  // a call has fewer allocations
// Of those of the library's threads only each so many-eth fails.
constexpr const char* kStrideVariable = "TEST_STRIDE";

// Runs `f`, whose allocation number `which` fails; whether there was one.
template <typename F>
bool FailOne(long which, F f) {
  allocations_left = which;
  f();
  const bool failed = allocations_left < 0;
  allocations_left = -1;
  return failed;
}

// The same where no allocation succeeds any more after that.
template <typename F>
bool FailAllFrom(long which, F f) {
  for_good = true;
  failed_for_good = false;
  allocations_left = which;
  f();
  allocations_left = -1;
  for_good = false;
  return failed_for_good;
}

enum class Kind { kBlocking, kAsynchronous };

Status Sum(Communicator& communicator, Kind kind, std::vector<float>& data) {
  if (kind == Kind::kBlocking) {
    return communicator.AllReduce(data.data(), data.data(), kCount,
                                  DataType::kFloat32, ReduceOp::kSum);
  }
  Result<Request> request = communicator.AllReduceAsync(
      data.data(), data.data(), kCount, DataType::kFloat32, ReduceOp::kSum);
  return request.ok() ? request->Wait() : request.status();
}

class AllocationFailure : public ::testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(Kinds, AllocationFailure,
                         ::testing::Values(Kind::kBlocking,
                                           Kind::kAsynchronous));

TEST_P(AllocationFailure, OfACallFailsTheCommunicator) {
  bool failed = true;
  long which = 0;
  for (; failed && which < kMost; ++which) {
    const std::vector<Status> statuses = RunRanks(2, [&](Communicator& c) {
      std::vector<float> data(kCount, 1);
      if (c.rank() != 0) {
        return Sum(c, Kind::kBlocking, data);
      }
      Status status;
      failed = FailOne(which, [&] { status = Sum(c, GetParam(), data); });
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

// Then nobody can be told, and the peer waits for as long as a call may take.
TEST(AllocationFailureTest, OfAllThatComeIsAnErrorOfTheCallToo) {
  bool failed = true;
  long which = 0;
  for (; failed && which < kMost; ++which) {
    const auto shorten = [](int, CommunicatorOptions& options) {
      options.environment.timeout_ms = 200;
    };
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
    const std::vector<Status> statuses = RunRanks(2, body, shorten);
    EXPECT_EQ(statuses[1].ok(), !failed) << statuses[1].ToString();
  }
  EXPECT_GT(which, 1);
  EXPECT_LT(which, kMost);
}

// The C interface's, by the environment of this process.
ringpipe_communicator* CreateInC(int rank, const std::string& job) {
  const std::string root = "unix:@" + job;
  ringpipe_options options = {};
  options.explicit_rank = 1;
  options.rank = rank;
  options.size = 2;
  options.root = root.c_str();
  options.job_id = job.c_str();
  options.log = [](ringpipe_log_level, const char*, void*) {};
  ringpipe_communicator* communicator = nullptr;
  EXPECT_EQ(ringpipe_create(&options, &communicator), RINGPIPE_OK)
      << ringpipe_error_message();
  return communicator;
}

TEST(AllocationFailureTest, OfACallInCIsItsStatus) {
  if (!OverHostMemory()) {
    setenv("RINGPIPE_DEVICE", "soft", 1);
  }
  bool failed = true;
  long which = 0;
  for (; failed && which < kMost; ++which) {
    const std::string job = NewJob();
    std::vector<float> all[] = {std::vector<float>(kCount, 1),
                                std::vector<float>(kCount, 1)};
    const auto sum = [&all](ringpipe_communicator* communicator) {
      std::vector<float>& data = all[ringpipe_rank(communicator)];
      return ringpipe_all_reduce(communicator, data.data(), data.data(), kCount,
                                 RINGPIPE_FLOAT32, RINGPIPE_SUM,
                                 RINGPIPE_DEFAULT_TIMEOUT, nullptr);
    };
    auto other = std::async(std::launch::async, [&] {
      ringpipe_communicator* const communicator = CreateInC(1, job);
      const ringpipe_status status = sum(communicator);
      ringpipe_destroy(communicator);
      return status;
    });
    ringpipe_communicator* const own = CreateInC(0, job);
    ringpipe_status status = RINGPIPE_OK;
    failed = FailOne(which, [&] { status = sum(own); });
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
  unsetenv("RINGPIPE_DEVICE");
}

// (the name of the threads, on how many hosts the ranks believe that they are)
class ThreadsAllocationFailure
    : public ::testing::TestWithParam<std::tuple<const char*, int>> {};

std::vector<std::tuple<const char*, int>> Threads() {
  std::vector<std::tuple<const char*, int>> threads = {
      {"ringpipe-boot", 1}, {"ringpipe-calls", 1}, {"ringpipe-tcp", 2}};
  if (!OverHostMemory()) {  // which needs no device on one host
    threads.emplace_back("ringpipe-soft0", 1);
  }
  return threads;
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadsAllocationFailure,
                         ::testing::ValuesIn(Threads()));

// Of two ranks, each of whose threads may be the one.
std::vector<Status> RunJob(int hosts, int timeout_ms) {
  return RunRanks(
      2,
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
  const auto [threads, hosts] = GetParam();
  // Makes what lasts as long as the process.
  for (const Status& status : RunJob(hosts, 10'000)) {
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  bool failed = true;
  long which = 0;
  const char* const every = std::getenv(kStrideVariable);
  const int stride = every != nullptr ? std::atoi(every) : 1;
  int failures = 0;
  for (; failed && which < kMost; which += stride) {
    SCOPED_TRACE("allocation " + std::to_string(which));
    const Holdings before;
    const auto start = std::chrono::steady_clock::now();
    watched_allocations_left = which;
    watched_threads = threads;
    RunJob(hosts, 300);
    watched_threads = nullptr;
    failed = watched_allocations_left < 0;
    failures += failed ? 1 : 0;
    EXPECT_LT(std::chrono::steady_clock::now() - start,
              LivenessBound(std::chrono::seconds(3)));
    EXPECT_EQ(WhatIsLeft(before), "");
  }
  EXPECT_GT(failures, 0);
  EXPECT_LT(which, kMost);
}

TEST(AllocationFailureTest, OfTheDestructionEndsNoProcess) {
  bool failed = true;
  long which = 0;
  for (; failed && which < kMost; ++which) {
    const std::string job = NewJob();
    auto other = std::async(std::launch::async, [&] {
      return Communicator::Create(RankOptions(1, 2, job)).status();
    });
    auto own = Communicator::Create(RankOptions(0, 2, job));
    ASSERT_TRUE(own.ok()) << own.status().ToString();
    failed = FailOne(which, [&] { own.value().reset(); });
    EXPECT_TRUE(other.get().ok());
  }
  EXPECT_GT(which, 1);
  EXPECT_LT(which, kMost);
}

}  // namespace
}  // namespace ringpipe::testing
