// What a short call costs besides its messages: no allocation, no lock that
// another thread holds.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <tuple>
#include <vector>

#include "engine/communicator.h"
#include "engine/ringpipe.h"
#include "gtest/gtest.h"
#include "tests/rank_threads.h"

namespace {

// Of the threads that count.
thread_local bool counts = false;
std::atomic<int> allocations = 0;
std::atomic<int> contended_locks = 0;

void CountAllocation() {
  if (counts) {
    ++allocations;
  }
}

}  // namespace

// This program calls these instead of libc's.
extern "C" {

void* __libc_malloc(std::size_t bytes);                    // NOLINT
void* __libc_calloc(std::size_t count, std::size_t size);  // NOLINT
void* __libc_realloc(void* memory, std::size_t bytes);     // NOLINT

void* malloc(std::size_t bytes) {
  CountAllocation();
  return __libc_malloc(bytes);
}

void* calloc(std::size_t count, std::size_t size) {
  CountAllocation();
  return __libc_calloc(count, size);
}

void* realloc(void* memory, std::size_t bytes) {
  CountAllocation();
  return __libc_realloc(memory, bytes);
}

int pthread_mutex_lock(pthread_mutex_t* mutex) {
  if (counts) {
    const int taken = pthread_mutex_trylock(mutex);
    if (taken == 0) {
      return 0;
    }
    ++contended_locks;
  }
  static const auto lock = reinterpret_cast<int (*)(pthread_mutex_t*)>(
      dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  return lock(mutex);
}
}

namespace ringpipe::testing {
namespace {

constexpr int kRounds = 200;

TEST(ShortCallTest, TheCountersCount) {
  counts = true;
  void* volatile memory = std::malloc(1);
  counts = false;
  std::free(memory);
  EXPECT_EQ(allocations.exchange(0), 1);

  pthread_mutex_t mutex;
  pthread_mutexattr_t recursive;
  pthread_mutexattr_init(&recursive);
  pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_ERRORCHECK);
  pthread_mutex_init(&mutex, &recursive);
  counts = true;
  pthread_mutex_lock(&mutex);
  pthread_mutex_lock(&mutex);  // held by this very thread: an error
  counts = false;
  pthread_mutex_unlock(&mutex);
  EXPECT_EQ(contended_locks.exchange(0), 1);
}

// (the way, how many ranks)
class ShortCallTest : public ::testing::TestWithParam<std::tuple<Way, int>> {};

TEST_P(ShortCallTest, AllocatesNothingAndTakesNoContendedLock) {
  const auto [way, size] = GetParam();
  allocations = contended_locks = 0;
  ExpectRanks(way, size, [](Communicator& c) -> Status {
    constexpr auto kType = DataType::kFloat64;
    const std::vector<double> ones(c.size(), 1);
    std::vector<double> all(c.size());
    double sum = 0, part = 0, root = 0;
    for (int round = -kRounds; round < kRounds; ++round) {
      counts = round >= 0;
      RINGPIPE_RETURN_IF_ERROR(
          c.AllReduce(ones.data(), &sum, 1, kType, ReduceOp::kSum));
      RINGPIPE_RETURN_IF_ERROR(
          c.ReduceScatter(ones.data(), &part, 1, kType, ReduceOp::kSum));
      RINGPIPE_RETURN_IF_ERROR(c.AllGather(ones.data(), all.data(), 1, kType));
      RINGPIPE_RETURN_IF_ERROR(c.Broadcast(ones.data(), &root, 1, kType, 0));
      RINGPIPE_RETURN_IF_ERROR(c.Barrier());
    }
    counts = false;
    return sum == c.size() && part == c.size() && root == 1 && all == ones
               ? Status::Ok()
               : Status(StatusCode::kInternal, "wrong");
  });
  EXPECT_EQ(allocations, 0);
  EXPECT_EQ(contended_locks, 0);
}

// In C a call is the same, and of a job of one rank all of it.
TEST(ShortCallTest, InCAllocatesNothingEither) {
  allocations = 0;
  ringpipe_options options = {};
  options.struct_size = sizeof options;
  options.explicit_rank = 1;
  options.size = 1;
  ringpipe_communicator* c = nullptr;
  ASSERT_EQ(ringpipe_create(&options, &c), RINGPIPE_OK)
      << ringpipe_error_message();
  double one = 1, sum = 0;
  for (int round = -kRounds; round < kRounds; ++round) {
    counts = round >= 0;
    ASSERT_EQ(
        ringpipe_all_reduce(c, &one, &sum, 1, RINGPIPE_FLOAT64, RINGPIPE_SUM,
                            RINGPIPE_DEFAULT_TIMEOUT, nullptr),
        RINGPIPE_OK);
  }
  counts = false;
  ringpipe_destroy(c);
  EXPECT_EQ(sum, 1);
  EXPECT_EQ(allocations, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, ShortCallTest,
    ::testing::Combine(::testing::ValuesIn(WaysOf("short_call_test")),
                       ::testing::Values(2, 3, 8)),
    [](const auto& info) {
      return std::string(Name(std::get<0>(info.param))) + "_" +
             std::to_string(std::get<1>(info.param)) + "ranks";
    });

}  // namespace
}  // namespace ringpipe::testing
