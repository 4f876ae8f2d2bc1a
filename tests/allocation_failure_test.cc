// Each allocation of a call in turn fails: the call ends with an error, its
// peer hears of it, and everything can be destroyed.
#include <cstdlib>
#include <future>
#include <new>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/rank_threads.h"

namespace {

// Of this thread: how many allocations succeed before one fails; -1: all do.
thread_local long allocations_left = -1;

}  // namespace

void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  const bool fails = allocations_left >= 0 && allocations_left-- == 0;
  return fails ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
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

// Runs `f`, whose allocation number `which` fails; whether there was one.
template <typename F>
bool FailOne(long which, F f) {
  allocations_left = which;
  f();
  const bool failed = allocations_left < 0;
  allocations_left = -1;
  return failed;
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
