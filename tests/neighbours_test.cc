// Ranks of several hosts, of which those of one host share memory or not; and
// ranks that are a call apart.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

constexpr std::chrono::seconds kTimeout(30);

// Random calls, the same on all ranks: neighbours that share memory make some
// in which they have nothing to do with each other.
Status MakeCalls(Communicator& c, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> values(100'000);
  for (int call = 0; call < 60; ++call) {
    const int root = static_cast<int>(random() % c.size());
    const std::size_t count = random() % 2 == 0 ? 2 : values.size();
    switch (random() % 3) {
      case 0:
        RINGPIPE_RETURN_IF_ERROR(c.Barrier(kTimeout));
        break;
      case 1:
        std::ranges::fill(values, c.rank() == root ? call : -1);
        RINGPIPE_RETURN_IF_ERROR(c.Broadcast(values.data(), values.data(),
                                             count, DataType::kInt32, root,
                                             kTimeout));
        EXPECT_EQ(std::count(values.begin(), values.begin() + count, call),
                  count)
            << "call " << call;
        break;
      default:
        std::ranges::fill(values, 1);
        RINGPIPE_RETURN_IF_ERROR(c.AllReduce(values.data(), values.data(),
                                             count, DataType::kInt32,
                                             ReduceOp::kSum, kTimeout));
        EXPECT_EQ(std::count(values.begin(), values.begin() + count, c.size()),
                  count)
            << "call " << call;
        break;
    }
  }
  return Status::Ok();
}

// (the way of neighbours, a letter for each rank: its host)
class NeighboursTest
    : public ::testing::TestWithParam<std::tuple<Way, std::string>> {};

TEST_P(NeighboursTest, MakeAllCallsWhoeverHasToDoWithWhom) {
  const auto& [way, hosts] = GetParam();
  for (const unsigned seed : {1U, 2U}) {
    ExpectRanks(
        way, static_cast<int>(hosts.size()),
        [seed](Communicator& c) { return MakeCalls(c, seed); },
        [&hosts = hosts](int rank, CommunicatorOptions& options) {
          options.environment.host_id = hosts.substr(rank, 1);
        });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ways, NeighboursTest,
    ::testing::Combine(::testing::ValuesIn(WaysOf("neighbours_test")),
                       ::testing::Values("aab", "abab", "aaabbb", "aaaabbbb",
                                         "abcabc")),
    [](const auto& info) {
      return std::string(Name(std::get<0>(info.param))) + "_" +
             std::get<1>(info.param);
    });

class EarlyMessageTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, EarlyMessageTest,
                         ::testing::ValuesIn(WaysOf("neighbours_test")),
                         NameOfWay);

// One rank is ahead by a call, whose short message comes to the other one
// before that begins it; and then nothing else comes for a while.
TEST_P(EarlyMessageTest, IsSeenAtOnceByTheCallThatItIsFor) {
  ExpectRanks(GetParam(), 2, [](Communicator& c) -> Status {
    auto shortest = std::chrono::steady_clock::duration::max();
    for (int run = 0; run < 10; ++run) {
      if (c.rank() == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
      float value = 1;
      RINGPIPE_RETURN_IF_ERROR(c.AllReduce(
          &value, &value, 1, DataType::kFloat32, ReduceOp::kSum, kTimeout));
      if (c.rank() == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
      const auto start = std::chrono::steady_clock::now();
      RINGPIPE_RETURN_IF_ERROR(c.Barrier(kTimeout));
      shortest = std::min(shortest, std::chrono::steady_clock::now() - start);
    }
    if (c.rank() == 0) {
      // A rank that does not see it looks again after 500 ms.
      EXPECT_LT(shortest, std::chrono::milliseconds(300));
    }
    return Status::Ok();
  });
}

}  // namespace
}  // namespace ringpipe::testing
