// A communicator that is destroyed during a call: whoever is in that call, here
// or on another rank, is told.
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

const auto kWays = ::testing::ValuesIn(WaysOf("destruction_test"));

using std::chrono::milliseconds;

using Created = Result<std::unique_ptr<Communicator>>;

// Ranks 0 and 1 of a job of their own, of which rank 0 may have a function.
std::pair<Created, Created> CreatePair(
    Way way, const std::string& job = NewJob(),
    const std::function<bool()>& while_waiting = {}) {
  auto joining = std::async(std::launch::async, [&] {
    return Communicator::Create(RankOptions(way, 1, 2, job));
  });
  CommunicatorOptions options = RankOptions(way, 0, 2, job);
  options.while_waiting = while_waiting;
  options.while_waiting_interval = milliseconds(1);
  Created own = Communicator::Create(options);
  return {std::move(own), joining.get()};
}

class DestructionTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, DestructionTest, kWays, NameOfWay);

// By the same options.
TEST_P(DestructionTest, OfAFailedCommunicatorMakesRoomForANewOne) {
  const std::string job = NewJob();
  for (int round = 0; round < 3; ++round) {
    auto [own, other] = CreatePair(GetParam(), job);
    ASSERT_TRUE(own.ok()) << own.status().ToString();
    ASSERT_TRUE(other.ok()) << other.status().ToString();
    auto call =
        std::async(std::launch::async, [&c = **other] { return c.Barrier(); });
    EXPECT_TRUE((*own)->Barrier().ok());
    EXPECT_TRUE(call.get().ok());
    (*own)->Abort("the test says so");
    EXPECT_EQ((*other)->Barrier().code(), StatusCode::kAborted);
  }
}

TEST_P(DestructionTest, EndsTheBlockingCallOfAnotherThread) {
  constexpr int kRounds = 30;
  constexpr std::size_t kCount = 1 << 14;  // copied in before a peer agrees
  for (int round = 0; round < kRounds; ++round) {
    auto [own, other] = CreatePair(GetParam());
    ASSERT_TRUE(own.ok() && other.ok());
    std::vector<float> data(kCount);
    // Rank 1 never makes this call.
    auto call = std::async(std::launch::async, [&c = **own, &data] {
      return c.AllReduce(data.data(), data.data(), kCount, DataType::kFloat32,
                         ReduceOp::kSum);
    });
    const auto is_inside = [&c = **own] {
      const std::vector<StageCounters> stages = c.stage_counters();
      return std::any_of(
          stages.begin(), stages.end(),
          [](const StageCounters& stage) { return stage.operations > 0; });
    };
    while (!is_inside()) {
      ASSERT_NE(call.wait_for(milliseconds(0)), std::future_status::ready);
      std::this_thread::yield();
    }
    own.value().reset();
    ExpectError(call.get(), StatusCode::kAborted,
                {"rank 0 destroyed its communicator while calls were pending"});
  }
}

TEST_P(DestructionTest, EndsTheExchangeOfAnotherThread) {
  std::atomic<bool> calls = false, waits = false;
  auto [own, other] = CreatePair(GetParam(), NewJob(), [&] {
    waits = calls.load();
    return false;
  });
  ASSERT_TRUE(own.ok() && other.ok());
  // Rank 1 never makes this call.
  auto call = std::async(std::launch::async, [&calls, &c = **own] {
    calls = true;
    return c.Exchange("x").status();
  });
  while (!waits) {
    ASSERT_NE(call.wait_for(milliseconds(0)), std::future_status::ready);
    std::this_thread::yield();
  }
  own.value().reset();
  ExpectError(call.get(), StatusCode::kAborted,
              {"rank 0 destroyed its communicator while calls were pending"});
}

// The peer is in that call, or will be, and must not wait for it in vain.
TEST_P(DestructionTest, IsToldToThePeerWhereAnotherThreadCallsTooLate) {
  constexpr int kRounds = 20;
  int too_late = 0;
  // Where the destructor gets no core for as long as it would wait for the
  // peer, it has ended before a call could be too late, and such a round says
  // nothing.
  for (int round = 0; too_late < kRounds && round < 2 * kRounds; ++round) {
    std::atomic<bool> destroys = false, waits = false, is_gone = false;
    std::atomic<bool> has_called = false;
    // The destructor waits for the peer until the other thread has called.
    auto [own, other] = CreatePair(GetParam(), NewJob(), [&] {
      if (destroys && !waits.exchange(true)) {
        has_called.wait(false);
      }
      return false;
    });
    ASSERT_TRUE(own.ok() && other.ok());
    std::atomic<int> ready = 0;
    auto call = std::async(std::launch::async, [&, &c = **own] {
      EXPECT_TRUE(c.Barrier().ok());
      ++ready;
      while (!waits && !is_gone) {
        std::this_thread::yield();
      }
      Status status = waits ? c.Barrier() : Status();
      has_called = true;
      has_called.notify_one();
      return status;
    });
    auto peer = std::async(std::launch::async, [&, &c = **other] {
      EXPECT_TRUE(c.Barrier().ok());
      ++ready;
      return c.Barrier();
    });
    while (ready < 2) {
      std::this_thread::yield();
    }
    destroys = true;
    own.value().reset();
    is_gone = true;
    const Status called = call.get();
    const Status waited = peer.get();
    if (!waits) {
      continue;
    }
    ++too_late;
    EXPECT_EQ(called.code(), StatusCode::kAborted);
    ExpectError(waited, StatusCode::kAborted,
                {"rank 0 destroyed its communicator while calls were pending"});
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_EQ(too_late, kRounds);
}

}  // namespace
}  // namespace ringpipe::testing
