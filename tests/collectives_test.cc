// Every collective gives the right result: for all types and operations, rank
// counts and element counts, in place and out of place, blocking and not, in
// the software device's adversarial mode and not.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "engine/algorithms.h"
#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/rank_threads.h"
#include "tests/reference.h"

namespace ringpipe::testing {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kLargest = 1 << 17;
#else
// Whole, and of each buffer but the shortest, what the kernel may copy between
// ranks of one host.
constexpr std::size_t kLargest = (1 << 20) + 1000;
#endif

struct Mode {
  int size;
  int adversary_seed;
  // The least of everything: slots, sub-chunks and depth; and no spinning, so
  // that each wait sleeps and each want of credit is announced.
  bool smallest = false;
};

// With the least of everything a round is one sub-chunk of each chunk.
constexpr int kSmallestDepth = 1;

// The bound that the engine states: the smallest number of slots with which no
// algorithm can deadlock.
int FewestSlots(int size) {
  int fewest = 1;
  for (const AlgorithmInfo& info : Algorithms()) {
    if (!info.one_host || OverHostMemory()) {
      fewest = std::max(fewest, info.slots(size, kSmallestDepth));
    }
  }
  return fewest;
}

void MakeSmallest(CommunicatorOptions& options, int size) {
  options.environment.subchunk_bytes = 256;
  options.environment.depth = kSmallestDepth;
  options.environment.slots = FewestSlots(size);
  options.environment.spin_us = 0;
}

std::string ModeName(const ::testing::TestParamInfo<Mode>& info) {
  return std::to_string(info.param.size) + "ranks" +
         (info.param.adversary_seed != 0 ? "_adversarial" : "") +
         (info.param.smallest ? "_smallest" : "");
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

class CollectivesTest : public ::testing::TestWithParam<Mode> {
 protected:
  void Expect(const RankBody& body) {
    ExpectRanks(
        GetParam().size, body, [](int rank, CommunicatorOptions& options) {
          options.environment.soft_adversary_seed = GetParam().adversary_seed;
          // What the kernel copies, beside ranks that use slots.
          if (OverHostMemory() &&
              options.environment.registration == "always" && rank % 3 == 2) {
            options.environment.registration = "never";
          }
          if (GetParam().smallest) {
            MakeSmallest(options, GetParam().size);
          }
        });
  }

  static std::size_t Largest() {
    return GetParam().smallest ? kLargest / 16 : kLargest;
  }

  static std::vector<std::size_t> Counts() {
    const std::size_t p = GetParam().size;
    return {0, 1, p - 1, p, p + 1, 250};
  }
};

TEST_P(CollectivesTest, AllReduceIsRightForEveryTypeAndOperation) {
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

TEST_P(CollectivesTest, AllReduceIsRightForEveryCount) {
  Expect([](Communicator& c) -> Status {
    for (const std::size_t count : Counts()) {
      RINGPIPE_RETURN_IF_ERROR(
          TestAllReduce<float>(c, count, DataType::kFloat32, ReduceOp::kSum));
    }
    return TestAllReduce<float>(c, Largest(), DataType::kFloat32,
                                ReduceOp::kSum);
  });
}

TEST_P(CollectivesTest, ReduceScatterIsRightForEveryCount) {
  Expect([](Communicator& c) -> Status {
    for (const std::size_t count : Counts()) {
      RINGPIPE_RETURN_IF_ERROR(TestReduceScatter<double>(
          c, count, DataType::kFloat64, ReduceOp::kAverage));
    }
    return TestReduceScatter<std::int32_t>(c, Largest() / c.size(),
                                           DataType::kInt32, ReduceOp::kSum);
  });
}

TEST_P(CollectivesTest, AllGatherIsRightForEveryCount) {
  Expect([](Communicator& c) -> Status {
    for (const std::size_t count : Counts()) {
      RINGPIPE_RETURN_IF_ERROR(
          TestAllGather<std::uint8_t>(c, count, DataType::kUint8));
    }
    return TestAllGather<std::int64_t>(c, Largest() / 2 / c.size(),
                                       DataType::kInt64);
  });
}

TEST_P(CollectivesTest, BroadcastIsRightFromEveryRoot) {
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

TEST_P(CollectivesTest, NoRankLeavesABarrierBeforeAllHaveEntered) {
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

TEST_P(CollectivesTest, AsynchronousCallsRunInTheirOrder) {
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

TEST_P(CollectivesTest, ResultsAreTheSameBitsOnEveryRankAndInEveryRun) {
  const int size = GetParam().size;
  constexpr std::size_t kCount = 100'003;
  std::vector<std::vector<float>> results(2 * size);
  for (int run = 0; run < 2; ++run) {
    Expect([&](Communicator& c) -> Status {
      std::vector<float> send(kCount);
      for (std::size_t i = 0; i < kCount; ++i) {
        // Sums of these round: another order would give other bits.
        send[i] = 1.0F / static_cast<float>(1 + (i * 7 + c.rank() * 13) % 1001);
      }
      auto& receive = results[run * size + c.rank()];
      receive.resize(kCount);
      return c.AllReduce(send.data(), receive.data(), kCount,
                         DataType::kFloat32, ReduceOp::kAverage);
    });
  }
  for (const auto& result : results) {
    const auto same_bits = [](float x, float y) {
      return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
    };
    EXPECT_TRUE(std::equal(result.begin(), result.end(), results[0].begin(),
                           results[0].end(), same_bits));
  }
}

TEST_P(CollectivesTest, MemoryOfTheCommunicatorWorksAsBuffers) {
  Expect([](Communicator& c) -> Status {
    constexpr std::size_t kCount = 200'000;
    RINGPIPE_ASSIGN_OR_RETURN(void* const send,
                              c.Allocate(kCount * sizeof(float)));
    RINGPIPE_ASSIGN_OR_RETURN(void* const receive,
                              c.Allocate(kCount * sizeof(float)));
    const auto input = Inputs<float>(c.rank(), 0, kCount, ReduceOp::kMax);
    std::memcpy(send, input.data(), kCount * sizeof(float));
    for (const bool in_place : {false, true}) {
      void* const source = in_place ? send : receive;
      RINGPIPE_RETURN_IF_ERROR(c.AllReduce(send, in_place ? send : receive,
                                           kCount, DataType::kFloat32,
                                           ReduceOp::kMax));
      std::vector<float> got(kCount);
      std::memcpy(got.data(), source, kCount * sizeof(float));
      RINGPIPE_RETURN_IF_ERROR(Compare(
          got, Results<float>(c.size(), 0, kCount, ReduceOp::kMax), "result"));
    }
    RINGPIPE_RETURN_IF_ERROR(c.Free(send));
    return c.Free(receive);
  });
}

// One fewer than the tests above have, and than which there is a deadlock
// (engine/algorithms_test.cc finds it): refused at creation, on every rank.
TEST(FewestSlotsTest, OneFewerIsRefused) {
  constexpr int kSize = 3;
  ASSERT_EQ(FewestSlots(kSize), OverHostMemory() ? 3 : 2);
  const auto create = [](int fewer) {
    return RunRanks(
        kSize, [](Communicator& c) { return c.Barrier(); },
        [fewer](int, CommunicatorOptions& options) {
          MakeSmallest(options, kSize);
          options.environment.slots -= fewer;
        });
  };
  for (const Status& status : create(0)) {
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  for (const Status& status : create(1)) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
    EXPECT_NE(
        status.message().find("need at least " +
                              std::to_string(FewestSlots(kSize)) + " slots"),
        std::string::npos)
        << status.ToString();
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, CollectivesTest,
                         ::testing::Values(Mode{1, 0}, Mode{2, 0}, Mode{3, 0},
                                           Mode{5, 0}, Mode{8, 0}, Mode{16, 0},
                                           Mode{1, 1}, Mode{2, 1}, Mode{3, 1},
                                           Mode{5, 1}, Mode{8, 1}, Mode{16, 1},
                                           Mode{2, 0, true}, Mode{3, 1, true},
                                           Mode{8, 0, true}, Mode{5, 1, true}),
                         ModeName);

// Where both of two ranks reduce what they exchange, the operands must not
// change places: the smaller of 0 and -0, and the sum of two NaNs, is the
// first.
TEST(SameBitsTest, OnEveryRankAlsoForZeroesAndNaNs) {
  for (const int size : {2, 3, 4, 7}) {
    ExpectRanks(size, [](Communicator& c) -> Status {
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

}  // namespace
}  // namespace ringpipe::testing
