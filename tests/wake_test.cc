// Ranks that sleep in every wait, at once: whatever they wait for wakes them.
// One that is not woken looks by itself after 500 ms.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kCalls = 1500;
constexpr milliseconds kLong(400);
// A busy machine may keep a thread from running as long; and now and then it
// does so more often.
constexpr int kMostLong = 3;
constexpr int kRuns = 3;

// Which call it is and how long it is, the same on all ranks. In a broadcast
// some say something to a rank that has nothing to say to them.
Status MakeCall(Communicator& c, int call, std::vector<float>& send,
                std::vector<float>& receive) {
  std::mt19937 random(call);
  const std::size_t count =
      std::vector<std::size_t>{1, 3000, 40'000}[random() % 3];
  switch (random() % 3) {
    case 0:
      return c.Barrier();
    case 1:
      return c.Broadcast(send.data(), receive.data(), count, DataType::kFloat32,
                         static_cast<int>(random() % c.size()));
    default:
      return c.AllReduce(send.data(), receive.data(), count, DataType::kFloat32,
                         ReduceOp::kSum);
  }
}

class WakeTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, WakeTest,
                         ::testing::ValuesIn(WaysOf("wake_test")), NameOfWay);

// How many calls of a rank took long, at most.
int CountLongCalls(Way way) {
  std::vector<int> waited(3);
  const std::vector<Status> statuses = RunRanks(
      way, static_cast<int>(waited.size()),
      [&](Communicator& c) {
        std::vector<float> send(40'000, 1);
        std::vector<float> receive(send.size());
        for (int call = 0; call < kCalls; ++call) {
          const auto start = steady_clock::now();
          RINGPIPE_RETURN_IF_ERROR(MakeCall(c, call, send, receive));
          waited[c.rank()] += steady_clock::now() - start > kLong ? 1 : 0;
        }
        return Status::Ok();
      },
      [](int, CommunicatorOptions& options) {
        options.environment.spin_us = 0;
      });
  for (const Status& status : statuses) {
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  return std::ranges::max(waited);
}

TEST_P(WakeTest, NoSleeperIsForgotten) {
  int most = CountLongCalls(GetParam());
  // A sleeper that is forgotten is so in each run.
  for (int run = 1; run < kRuns && most > kMostLong && !HasFailure(); ++run) {
    most = CountLongCalls(GetParam());
  }
  EXPECT_LE(most, kMostLong);
}

}  // namespace
}  // namespace ringpipe::testing
