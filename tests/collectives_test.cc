// Every collective gives the right result: for all types and operations, rank
// counts and element counts, in place and out of place, blocking and not, by
// every algorithm; tests/ways.cc lists the cases.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "engine/algorithms.h"
#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/rank_threads.h"
#include "tests/reference.h"
#include "tests/ways.h"

namespace ringpipe::testing {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr std::size_t kLargest = 1 << 16;
#elif defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kLargest = 1 << 17;
#else
constexpr std::size_t kLargest = (1 << 20) + 1000;
#endif

// With the least of everything a round is one sub-chunk of each chunk.
constexpr int kSmallestDepth = 1;

// The bound that the engine states: the smallest number of slots with which no
// algorithm can deadlock.
int FewestSlots(Way way, int size) {
  const CommonHost host = {.ranks = SharesMemory(way) ? size : 0};
  return AlgorithmChoice().SlotsNeeded({.size = size}, kSmallestDepth, host);
}

void MakeSmallest(CommunicatorOptions& options, Way way, int size) {
  options.environment.subchunk_bytes = 256;
  options.environment.depth = kSmallestDepth;
  options.environment.slots = FewestSlots(way, size);
  options.environment.spin_us = 0;
}

template <typename T>
Status Compare(const std::vector<T>& got, const std::vector<T>& expected,
               const std::string& what) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!(got[i] == expected[i])) {
      return {StatusCode::kInternal,
              what + ": element " + std::to_string(i) + " of " +
                  std::to_string(expected.size()) + " is " +
                  std::to_string(got[i]) + ", not " +
                  std::to_string(expected[i])};
    }
  }
  return Status::Ok();
}

template <typename T>
Status TestAllReduce(Communicator& c, std::size_t count, DataType type,
                     ReduceOp op) {
  const auto expected = Results<T>(c.size(), 0, count, op);
  const auto send = Inputs<T>(c.rank(), 0, count, op);
  auto receive = Poisoned<T>(count);
  RINGPIPE_RETURN_IF_ERROR(
      c.AllReduce(send.data(), receive.data(), count, type, op));
  RINGPIPE_RETURN_IF_ERROR(Compare(receive, expected, "allreduce"));
  receive = send;
  RINGPIPE_RETURN_IF_ERROR(
      c.AllReduce(receive.data(), receive.data(), count, type, op));
  return Compare(receive, expected, "allreduce in place");
}

template <typename T>
Status TestReduceScatter(Communicator& c, std::size_t count, DataType type,
                         ReduceOp op) {
  const std::size_t mine = c.rank() * count;
  const auto expected = Results<T>(c.size(), mine, count, op);
  auto send = Inputs<T>(c.rank(), 0, count * c.size(), op);
  auto receive = Poisoned<T>(count);
  RINGPIPE_RETURN_IF_ERROR(
      c.ReduceScatter(send.data(), receive.data(), count, type, op));
  RINGPIPE_RETURN_IF_ERROR(Compare(receive, expected, "reduce-scatter"));
  RINGPIPE_RETURN_IF_ERROR(
      c.ReduceScatter(send.data(), send.data() + mine, count, type, op));
  return Compare(
      std::vector<T>(send.begin() + mine, send.begin() + mine + count),
      expected, "reduce-scatter in place");
}

template <typename T>
Status TestAllGather(Communicator& c, std::size_t count, DataType type) {
  std::vector<T> expected;
  for (int rank = 0; rank < c.size(); ++rank) {
    const auto part = Inputs<T>(rank, 0, count, ReduceOp::kSum);
    expected.insert(expected.end(), part.begin(), part.end());
  }
  const auto send = Inputs<T>(c.rank(), 0, count, ReduceOp::kSum);
  auto receive = Poisoned<T>(count * c.size());
  RINGPIPE_RETURN_IF_ERROR(
      c.AllGather(send.data(), receive.data(), count, type));
  RINGPIPE_RETURN_IF_ERROR(Compare(receive, expected, "all-gather"));
  receive = Poisoned<T>(count * c.size());
  T* const own = receive.data() + c.rank() * count;
  std::copy(send.begin(), send.end(), own);
  RINGPIPE_RETURN_IF_ERROR(c.AllGather(own, receive.data(), count, type));
  return Compare(receive, expected, "all-gather in place");
}

template <typename T>
Status TestBroadcast(Communicator& c, std::size_t count, DataType type,
                     int root) {
  const auto expected = Inputs<T>(root, 0, count, ReduceOp::kSum);
  auto receive = Poisoned<T>(count);
  RINGPIPE_RETURN_IF_ERROR(
      c.Broadcast(c.rank() == root ? expected.data() : nullptr, receive.data(),
                  count, type, root));
  RINGPIPE_RETURN_IF_ERROR(Compare(receive, expected, "broadcast"));
  receive = c.rank() == root ? expected : Poisoned<T>(count);
  RINGPIPE_RETURN_IF_ERROR(
      c.Broadcast(receive.data(), receive.data(), count, type, root));
  return Compare(receive, expected, "broadcast in place");
}

class CollectivesTest : public ::testing::TestWithParam<CollectiveCase> {
 protected:
  static void Expect(const RankBody& body) {
    const CollectiveCase& own = GetParam();
    ExpectRanks(own.way, own.size, body,
                [&own](int /*rank*/, CommunicatorOptions& options) {
                  if (!own.algorithm.empty()) {
                    options.environment.algorithm =
                        std::string(CollectiveName(own.collective)) + ":" +
                        std::string(own.algorithm);
                  }
                  if (own.smallest) {
                    MakeSmallest(options, own.way, own.size);
                  }
                });
  }

  static std::size_t Largest() {
    return GetParam().smallest ? kLargest / 16 : kLargest;
  }

  // Fewer where each is many sub-chunks, and a sanitizer looks at each.
  static std::size_t AtMost(std::size_t count) {
    return std::min(count, 4 * Largest() + 3);
  }

  static std::vector<std::size_t> Counts() {
    const std::size_t p = GetParam().size;
    return {0, 1, p - 1, p, p + 1, 250};
  }
};

class AllReduceTest : public CollectivesTest {};

INSTANTIATE_TEST_SUITE_P(Ways, AllReduceTest,
                         ::testing::ValuesIn(CasesOf(Collective::kAllReduce)),
                         NameOfCase);

TEST_P(AllReduceTest, IsRightForEveryTypeAndOperation) {
  Expect([](Communicator& c) -> Status {
    for (const DataType type : kDataTypes) {
      for (const ReduceOp op : kReduceOps) {
        RINGPIPE_RETURN_IF_ERROR(WithType(type,
                                          [&]<typename T>() {
                                            return TestAllReduce<T>(c, 1000,
                                                                    type, op);
                                          })
                                     .WithContext(std::string(Name(type)) +
                                                  " " + std::string(Name(op))));
      }
    }
    return Status::Ok();
  });
}

TEST_P(AllReduceTest, IsRightForEveryCount) {
  Expect([](Communicator& c) -> Status {
    for (const std::size_t count : Counts()) {
      RINGPIPE_RETURN_IF_ERROR(
          TestAllReduce<float>(c, count, DataType::kFloat32, ReduceOp::kSum));
    }
    return TestAllReduce<float>(c, Largest(), DataType::kFloat32,
                                ReduceOp::kSum);
  });
}

class ReduceScatterTest : public CollectivesTest {};

INSTANTIATE_TEST_SUITE_P(
    Ways, ReduceScatterTest,
    ::testing::ValuesIn(CasesOf(Collective::kReduceScatter)), NameOfCase);

TEST_P(ReduceScatterTest, IsRightForEveryCount) {
  Expect([](Communicator& c) -> Status {
    for (const std::size_t count : Counts()) {
      RINGPIPE_RETURN_IF_ERROR(TestReduceScatter<double>(
          c, count, DataType::kFloat64, ReduceOp::kAverage));
    }
    return TestReduceScatter<std::int32_t>(c, Largest() / c.size(),
                                           DataType::kInt32, ReduceOp::kSum);
  });
}

class AllGatherTest : public CollectivesTest {};

INSTANTIATE_TEST_SUITE_P(Ways, AllGatherTest,
                         ::testing::ValuesIn(CasesOf(Collective::kAllGather)),
                         NameOfCase);

TEST_P(AllGatherTest, IsRightForEveryCount) {
  Expect([](Communicator& c) -> Status {
    for (const std::size_t count : Counts()) {
      RINGPIPE_RETURN_IF_ERROR(
          TestAllGather<std::uint8_t>(c, count, DataType::kUint8));
    }
    return TestAllGather<std::int64_t>(c, Largest() / 2 / c.size(),
                                       DataType::kInt64);
  });
}

class BroadcastTest : public CollectivesTest {};

INSTANTIATE_TEST_SUITE_P(Ways, BroadcastTest,
                         ::testing::ValuesIn(CasesOf(Collective::kBroadcast)),
                         NameOfCase);

TEST_P(BroadcastTest, IsRightFromEveryRoot) {
  Expect([](Communicator& c) -> Status {
    for (int root = 0; root < c.size(); ++root) {
      for (const std::size_t count : Counts()) {
        RINGPIPE_RETURN_IF_ERROR(
            TestBroadcast<float>(c, count, DataType::kFloat32, root));
      }
    }
    return TestBroadcast<float>(c, Largest(), DataType::kFloat32, c.size() / 2);
  });
}

class BarrierTest : public CollectivesTest {};

INSTANTIATE_TEST_SUITE_P(Ways, BarrierTest,
                         ::testing::ValuesIn(CasesOf(Collective::kBarrier)),
                         NameOfCase);

TEST_P(BarrierTest, NoRankLeavesBeforeAllHaveEntered) {
  std::atomic<int> entered = 0;
  Expect([&](Communicator& c) -> Status {
    for (int round = 1; round <= 20; ++round) {
      ++entered;
      RINGPIPE_RETURN_IF_ERROR(c.Barrier());
      if (entered < round * c.size()) {
        return {StatusCode::kInternal, "left the barrier early"};
      }
      RINGPIPE_RETURN_IF_ERROR(c.Barrier());
    }
    return Status::Ok();
  });
}

TEST_P(AllReduceTest, AsynchronousCallsRunInTheirOrder) {
  Expect([](Communicator& c) -> Status {
    constexpr int kCalls = 10;
    constexpr std::size_t kCount = 5000;
    // Each call's input is the one before's output.
    std::vector<std::vector<std::int64_t>> values(
        kCalls + 1, Inputs<std::int64_t>(c.rank(), 0, kCount, ReduceOp::kSum));
    std::vector<Request> requests;
    for (int call = 0; call < kCalls; ++call) {
      RINGPIPE_ASSIGN_OR_RETURN(
          Request request,
          c.AllReduceAsync(values[call].data(), values[call + 1].data(), kCount,
                           DataType::kInt64, ReduceOp::kSum));
      requests.push_back(request);
    }
    // A blocking call takes its turn behind them.
    RINGPIPE_RETURN_IF_ERROR(c.Barrier());
    for (Request& request : requests) {
      if (!request.Done()) {
        return {StatusCode::kInternal, "a later call overtook this one"};
      }
      RINGPIPE_RETURN_IF_ERROR(request.Wait());
    }
    auto expected = Results<std::int64_t>(c.size(), 0, kCount, ReduceOp::kSum);
    for (std::int64_t& value : expected) {
      for (int call = 1; call < kCalls; ++call) {
        value *= c.size();
      }
    }
    return Compare(values[kCalls], expected, "the last of the calls");
  });
}

// On every rank only where the algorithm promises that.
TEST_P(AllReduceTest, ResultsAreTheSameBitsOnEveryRankAndInEveryRun) {
  const int size = GetParam().size;
  const std::size_t count = AtMost(100'003);
  std::vector<std::vector<float>> results(2 * size);
  for (int run = 0; run < 2; ++run) {
    Expect([&](Communicator& c) -> Status {
      std::vector<float> send(count);
      for (std::size_t i = 0; i < count; ++i) {
        // Sums of these round: another order would give other bits.
        send[i] = 1.0F / static_cast<float>(1 + (i * 7 + c.rank() * 13) % 1001);
      }
      auto& receive = results[run * size + c.rank()];
      receive.resize(count);
      return c.AllReduce(send.data(), receive.data(), count, DataType::kFloat32,
                         ReduceOp::kAverage);
    });
  }
  const AlgorithmInfo* const info =
      FindAlgorithm(GetParam().collective, GetParam().algorithm);
  const bool promises = info == nullptr || info->same_bits;
  for (int i = 0; i < 2 * size; ++i) {
    const auto same_bits = [](float x, float y) {
      return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
    };
    const auto& first = results[promises ? 0 : i % size];
    EXPECT_TRUE(std::equal(results[i].begin(), results[i].end(), first.begin(),
                           first.end(), same_bits));
  }
}

TEST_P(AllReduceTest, MemoryOfTheCommunicatorWorksAsBuffers) {
  Expect([](Communicator& c) -> Status {
    const std::size_t count = AtMost(200'000);
    RINGPIPE_ASSIGN_OR_RETURN(void* const send,
                              c.Allocate(count * sizeof(float)));
    RINGPIPE_ASSIGN_OR_RETURN(void* const receive,
                              c.Allocate(count * sizeof(float)));
    const auto input = Inputs<float>(c.rank(), 0, count, ReduceOp::kMax);
    std::memcpy(send, input.data(), count * sizeof(float));
    for (const bool in_place : {false, true}) {
      void* const source = in_place ? send : receive;
      RINGPIPE_RETURN_IF_ERROR(c.AllReduce(send, in_place ? send : receive,
                                           count, DataType::kFloat32,
                                           ReduceOp::kMax));
      std::vector<float> got(count);
      std::memcpy(got.data(), source, count * sizeof(float));
      RINGPIPE_RETURN_IF_ERROR(Compare(
          got, Results<float>(c.size(), 0, count, ReduceOp::kMax), "result"));
    }
    RINGPIPE_RETURN_IF_ERROR(c.Free(send));
    return c.Free(receive);
  });
}

const auto kWays = ::testing::ValuesIn(WaysOf("collectives_test"));

class FewestSlotsTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, FewestSlotsTest, kWays, NameOfWay);

// One fewer than the tests above have, and than which there is a deadlock
// (engine/algorithms_test.cc finds it): refused at creation, on every rank.
TEST_P(FewestSlotsTest, OneFewerIsRefused) {
  constexpr int kSize = 3;
  ASSERT_EQ(FewestSlots(GetParam(), kSize), SharesMemory(GetParam()) ? 3 : 2);
  const auto create = [](int fewer) {
    return RunRanks(
        GetParam(), kSize, [](Communicator& c) { return c.Barrier(); },
        [fewer](int, CommunicatorOptions& options) {
          MakeSmallest(options, GetParam(), kSize);
          options.environment.slots -= fewer;
        });
  };
  for (const Status& status : create(0)) {
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  for (const Status& status : create(1)) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
    EXPECT_NE(status.message().find(
                  "need at least " +
                  std::to_string(FewestSlots(GetParam(), kSize)) + " slots"),
              std::string::npos)
        << status.ToString();
  }
}

class SameBitsTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, SameBitsTest, kWays, NameOfWay);

// Where both of two ranks reduce what they exchange, the operands must not
// change places: the smaller of 0 and -0, and the sum of two NaNs, is the
// first.
TEST_P(SameBitsTest, OnEveryRankAlsoForZeroesAndNaNs) {
  for (const int size : {2, 3, 4, 7}) {
    ExpectRanks(GetParam(), size, [](Communicator& c) -> Status {
      const auto nan = static_cast<std::uint32_t>(0x7fc00001 + c.rank());
      const std::vector<float> send = {c.rank() % 2 == 0 ? 0.0F : -0.0F,
                                       c.rank() % 2 == 0 ? -0.0F : 0.0F,
                                       std::bit_cast<float>(nan)};
      for (const ReduceOp op :
           {ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kSum, ReduceOp::kProd}) {
        std::vector<float> receive(send.size());
        RINGPIPE_RETURN_IF_ERROR(c.AllReduce(
            send.data(), receive.data(), send.size(), DataType::kFloat32, op));
        std::vector<std::int32_t> all(send.size() * c.size());
        RINGPIPE_RETURN_IF_ERROR(c.AllGather(receive.data(), all.data(),
                                             send.size(), DataType::kInt32));
        for (std::size_t i = send.size(); i < all.size(); ++i) {
          EXPECT_EQ(all[i], all[i % send.size()])
              << "element " << i % send.size() << ", " << Name(op);
        }
      }
      return Status::Ok();
    });
  }
}

// What a seed makes: so many ranks, how their messages are cut up, and by which
// algorithm each collective goes.
struct RandomJob {
  explicit RandomJob(int seed) : random(seed), size(1 + Below(kMostRanks)) {
    subchunk_bytes = 256 << Below(8);
    depth = 1 + Below(4);
    for (int i = 0; i < kCollectives; ++i) {
      const auto collective = static_cast<Collective>(i);
      std::vector<const AlgorithmInfo*> all;
      for (const AlgorithmInfo& info : Algorithms()) {
        if (info.collective == collective && Exists(info, {0, size})) {
          all.push_back(&info);
        }
      }
      const AlgorithmInfo& chosen = *all[Below(static_cast<int>(all.size()))];
      algorithms += (algorithms.empty() ? "" : ",") +
                    std::string(CollectiveName(collective)) + ":" +
                    std::string(chosen.name);
      if (collective == Collective::kAllReduce) {
        same_bits = chosen.same_bits;
      }
    }
  }

  int Below(int limit) {
    return static_cast<int>(random() % static_cast<unsigned>(limit));
  }

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  static constexpr int kMostRanks = 5;
  static constexpr int kMostElementsLog = 12;
#else
  static constexpr int kMostRanks = 9;
  static constexpr int kMostElementsLog = 15;
#endif
  std::mt19937_64 random;
  int size;
  std::int64_t subchunk_bytes = 0;
  int depth = 0;
  std::string algorithms;
  bool same_bits = true;  // of its allreduce
};

// The same on every rank.
Status MakeRandomCall(Communicator& c, RandomJob& job) {
  const DataType type = kDataTypes[job.Below(kDataTypes.size())];
  const ReduceOp op = kReduceOps[job.Below(kReduceOps.size())];
  const std::size_t count = job.Below(1 << job.Below(job.kMostElementsLog));
  const int root = job.Below(c.size());
  const int collective = job.Below(4);
  return WithType(type,
                  [&]<typename T>() {
                    return collective == 0
                               ? TestAllReduce<T>(c, count, type, op)
                           : collective == 1
                               ? TestReduceScatter<T>(c, count, type, op)
                           : collective == 2
                               ? TestAllGather<T>(c, count, type)
                               : TestBroadcast<T>(c, count, type, root);
                  })
      .WithContext(std::string(Name(type)) + " " + std::string(Name(op)) +
                   ", count " + std::to_string(count) + ", root " +
                   std::to_string(root));
}

// Twice the same sums, which round: the same bits each time, and on every rank
// if the algorithm promises that.
Status CompareBits(Communicator& c, RandomJob& job) {
  const std::size_t count = 1 + job.Below(1 << job.kMostElementsLog);
  std::vector<float> send(count);
  for (float& value : send) {
    value = 1.0F / static_cast<float>(1 + (job.random() + c.rank()) % 1001);
  }
  std::vector<float> receive[2];
  std::vector<std::uint32_t> bits[2];
  for (int run = 0; run < 2; ++run) {
    receive[run].resize(count);
    bits[run].resize(count);
    RINGPIPE_RETURN_IF_ERROR(c.AllReduce(send.data(), receive[run].data(),
                                         count, DataType::kFloat32,
                                         ReduceOp::kSum));
    std::memcpy(bits[run].data(), receive[run].data(), count * sizeof(float));
  }
  RINGPIPE_RETURN_IF_ERROR(Compare(bits[1], bits[0], "another run's bits"));
  std::vector<std::uint32_t> first = bits[0];
  RINGPIPE_RETURN_IF_ERROR(
      c.Broadcast(first.data(), first.data(), count, DataType::kInt32, 0));
  return job.same_bits ? Compare(bits[0], first, "another rank's bits")
                       : Status::Ok();
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kSeeds = 8;
#else
constexpr int kSeeds = 40;
#endif

// (the way, the seed)
class RandomCallsTest : public ::testing::TestWithParam<std::tuple<Way, int>> {
};

INSTANTIATE_TEST_SUITE_P(Ways, RandomCallsTest,
                         ::testing::Combine(kWays,
                                            ::testing::Range(1, kSeeds + 1)),
                         [](const auto& info) {
                           return std::string(Name(std::get<0>(info.param))) +
                                  "_seed" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST_P(RandomCallsTest, AreRight) {
  const auto [way, seed] = GetParam();
  const RandomJob job(seed);
  SCOPED_TRACE(std::to_string(job.size) + " ranks, sub-chunks of " +
               std::to_string(job.subchunk_bytes) + " bytes, depth " +
               std::to_string(job.depth) + ", " + job.algorithms);
  ExpectRanks(
      way, job.size,
      [&job](Communicator& c) -> Status {
        RandomJob own = job;
        for (int call = 0; call < 8; ++call) {
          RINGPIPE_RETURN_IF_ERROR(MakeRandomCall(c, own));
        }
        return CompareBits(c, own);
      },
      [&job](int /*rank*/, CommunicatorOptions& options) {
        options.environment.subchunk_bytes = job.subchunk_bytes;
        options.environment.depth = job.depth;
        options.environment.algorithm = job.algorithms;
      });
}

// With ranks that share memory, and with ranks that do not.
TEST(ListTest, HasEveryAlgorithmOfEveryCall) {
  for (const AlgorithmInfo& info : Algorithms()) {
    std::set<bool> listed;
    for (const CollectiveCase& own : CasesOf(info.collective)) {
      if (own.algorithm == info.name) {
        listed.insert(SharesMemory(own.way));
      }
    }
    // A collective that no test runs has no call in the interface.
    EXPECT_TRUE(listed.size() == 2 || CasesOf(info.collective).empty())
        << "tests/ways.cc lacks " << CollectiveName(info.collective) << " by "
        << info.name;
  }
}

}  // namespace
}  // namespace ringpipe::testing
