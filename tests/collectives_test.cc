// Every collective gives the right result: for all types and operations, rank
// counts and element counts, in place and out of place, blocking and not, by
// every algorithm; tests/ways.cc lists the cases.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "engine/algorithms.h"
#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/rank_threads.h"
#include "tests/reference.h"
#include "tests/tested_call.h"
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

// Of so many calls one is made in pieces, too.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kPiecesEvery = 6;
#else
constexpr std::size_t kPiecesEvery = 2;
#endif

// With the least of everything a round is one sub-chunk of each chunk.
constexpr int kSmallestDepth = 1;

// Without the trees of a gather and a scatter, which need the most.
constexpr const char* kHumbleAlgorithms = "gather:linear,scatter:linear";

// The bound that the engine states: the smallest number of slots with which no
// algorithm can deadlock.
int FewestSlots(Way way, int size) {
  const Member of = {.size = size};
  const CommonHost host = {.ranks = SharesMemory(way) ? size : 0};
  return AlgorithmChoice::Parse(kHumbleAlgorithms, of)
      ->SlotsNeeded(of, kSmallestDepth, host);
}

void MakeSmallest(CommunicatorOptions& options, Way way, int size) {
  options.environment.subchunk_bytes = 256;
  options.environment.depth = kSmallestDepth;
  options.environment.algorithm = kHumbleAlgorithms;
  options.environment.slots = FewestSlots(way, size);
  options.environment.spin_us = 0;
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

// All calls that have buffers.
class CallTest : public CollectivesTest {
 protected:
  static std::vector<int> Roots(int size) {
    const Collective collective = GetParam().collective;
    if (!InfoOf(collective).is_rooted()) {
      return {0};
    }
    // Of a broadcast all; of the others four at most, to be no longer than it.
    const int step =
        collective == Collective::kBroadcast ? 1 : std::max(1, size / 4);
    std::vector<int> roots;
    for (int root = 0; root < size; root += step) {
      roots.push_back(root);
    }
    return roots;
  }
};

std::vector<CollectiveCase> CasesOfCalls() {
  std::vector<CollectiveCase> all;
  for (int i = 0; i < kCollectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (collective != Collective::kBarrier) {
      const auto cases = CasesOf(collective);
      all.insert(all.end(), cases.begin(), cases.end());
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Ways, CallTest, ::testing::ValuesIn(CasesOfCalls()),
                         [](const auto& info) {
                           return std::string(
                                      InfoOf(info.param.collective).function) +
                                  "_" + NameOfCase(info);
                         });

TEST_P(CallTest, IsRightForEveryTypeAndOperation) {
  Expect([](Communicator& c) -> Status {
    const Collective collective = GetParam().collective;
    const bool is_all_reduce = collective == Collective::kAllReduce;
    std::size_t turn = 0;
    for (const DataType type : kDataTypes) {
      for (const ReduceOp op : kReduceOps) {
        if (InfoOf(collective).reduces || op == ReduceOp::kSum) {
          const Call call = {.collective = collective,
                             .count = is_all_reduce ? 1000U : 100U,
                             .type = type,
                             .op = op,
                             .root = c.size() - 1};
          RINGPIPE_RETURN_IF_ERROR(TestCallOfType(c, call));
          if (turn++ % kPiecesEvery == 0) {
            RINGPIPE_RETURN_IF_ERROR(TestCallOfType(c, call, kHowsInPieces));
          }
        }
      }
    }
    return Status::Ok();
  });
}

// Of one type after the other.
TEST_P(CallTest, IsRightForEveryCountFromManyRoots) {
  Expect([](Communicator& c) -> Status {
    const CollectiveInfo& info = InfoOf(GetParam().collective);
    Call call = {.collective = GetParam().collective};
    std::size_t turn = 0;
    const auto test = [&](std::size_t count) {
      call.count = count;
      call.type = kDataTypes[turn % kDataTypes.size()];
      call.op = kReduceOps[turn % kReduceOps.size()];
      ++turn;
      Status status = TestCallOfType(c, call);
      return status.ok() && turn % (kPiecesEvery + 1) == 0
                 ? TestCallOfType(c, call, kHowsInPieces)
                 : status;
    };
    for (const int root : Roots(c.size())) {
      call.root = root;
      for (const std::size_t count : Counts()) {
        RINGPIPE_RETURN_IF_ERROR(test(count));
      }
    }
    call.root = c.size() / 2;
    return test(info.has_parts ? Largest() / c.size() : Largest());
  });
}

// All calls of which a part is one rank's.
class PartsTest : public CollectivesTest {};

std::vector<CollectiveCase> CasesOfParts() {
  std::vector<CollectiveCase> all = CasesOfCalls();
  std::erase_if(all, [](const CollectiveCase& own) {
    return !InfoOf(own.collective).takes_counts();
  });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Ways, PartsTest, ::testing::ValuesIn(CasesOfParts()),
                         [](const auto& info) {
                           return std::string(
                                      InfoOf(info.param.collective).function) +
                                  "_" + NameOfCase(info);
                         });

// Of so many ranks: none, one rank's alone, and short and long ones with
// nothing among them.
std::vector<std::vector<std::size_t>> CountsThatDiffer(int size,
                                                       std::size_t largest) {
  std::vector<std::vector<std::size_t>> all(5, std::vector<std::size_t>(size));
  std::mt19937_64 random(size);
  for (int rank = 0; rank < size; ++rank) {
    all[1][rank] = rank == size / 2 ? largest : 0;
    all[2][rank] = rank;
    all[3][rank] = random() % 3 == 0 ? 0 : random() % 3000;
    all[4][rank] = random() % 3 == 0 ? 1 : random() % (largest / size);
  }
  return all;
}

TEST_P(PartsTest, AreRightWhereTheyAreNotEquallyLong) {
  Expect([](Communicator& c) -> Status {
    std::size_t turn = 0;
    for (const auto& counts : CountsThatDiffer(c.size(), Largest() / 4)) {
      const Call call = {.collective = GetParam().collective,
                         .type = kDataTypes[turn % kDataTypes.size()],
                         .op = kReduceOps[turn % kReduceOps.size()],
                         .root = static_cast<int>(turn) % c.size(),
                         .counts = counts};
      RINGPIPE_RETURN_IF_ERROR(TestCallOfType(c, call));
      RINGPIPE_RETURN_IF_ERROR(TestCallOfType(c, call, kHowsInPieces));
      ++turn;
    }
    return Status::Ok();
  });
}

class AllReduceTest : public CollectivesTest {};

INSTANTIATE_TEST_SUITE_P(Ways, AllReduceTest,
                         ::testing::ValuesIn(CasesOf(Collective::kAllReduce)),
                         NameOfCase);

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
  Expect([](Communicator& c) {
    constexpr How kAllocated[] = {
        {.memory = Memory::kAllocated},
        {.in_place = true, .memory = Memory::kAllocated}};
    return TestCall<float>(c,
                           {.collective = Collective::kAllReduce,
                            .count = AtMost(200'000),
                            .type = DataType::kFloat32,
                            .op = ReduceOp::kMax},
                           kAllocated);
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
// change places: the smaller of 0 and -0 is the first. (Which NaN a NaN is may
// differ.)
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
          const std::size_t element = i % send.size();
          EXPECT_TRUE(all[i] == all[element] ||
                      (element == 2 &&
                       std::isnan(std::bit_cast<float>(all[i])) &&
                       std::isnan(std::bit_cast<float>(all[element]))))
              << "element " << element << ", " << Name(op) << ": " << all[i]
              << " and " << all[element];
        }
      }
      return Status::Ok();
    });
  }
}

// A call by its name, now and later.
struct NamedCall {
  Collective collective;
  Status (*now)(Communicator& c, const Call& call);
  Result<Request> (*later)(Communicator& c, const Call& call);
};

#define RINGPIPE_NAMED_CALL(name, ...)                           \
  {                                                              \
    Collective::k##name,                                         \
        [](Communicator& c, [[maybe_unused]] const Call& call) { \
          return c.name(__VA_ARGS__);                            \
        },                                                       \
        [](Communicator& c, [[maybe_unused]] const Call& call) { \
          return c.name##Async(__VA_ARGS__);                     \
        }                                                        \
  }
const NamedCall kNamedCalls[] = {
    RINGPIPE_NAMED_CALL(AllReduce, call.send, call.receive, call.count,
                        call.type, call.op),
    RINGPIPE_NAMED_CALL(ReduceScatter, call.send, call.receive, call.count,
                        call.type, call.op),
    RINGPIPE_NAMED_CALL(AllGather, call.send, call.receive, call.count,
                        call.type),
    RINGPIPE_NAMED_CALL(Broadcast, call.send, call.receive, call.count,
                        call.type, call.root),
    RINGPIPE_NAMED_CALL(Barrier),
    RINGPIPE_NAMED_CALL(Reduce, call.send, call.receive, call.count, call.type,
                        call.op, call.root),
    RINGPIPE_NAMED_CALL(Gather, call.send, call.receive, call.count, call.type,
                        call.root),
    RINGPIPE_NAMED_CALL(Scatter, call.send, call.receive, call.count, call.type,
                        call.root),
    RINGPIPE_NAMED_CALL(AllToAll, call.send, call.receive, call.count,
                        call.type),
};
#undef RINGPIPE_NAMED_CALL

TEST(NamedCallTest, EachIsTheCallOfThatName) {
  ExpectRanks(Way::kHostMemory, 3, [](Communicator& c) -> Status {
    for (int i = 0; i < kCollectives; ++i) {
      const NamedCall& named = kNamedCalls[i];
      EXPECT_EQ(static_cast<int>(named.collective), i);
      Call call = {.collective = named.collective,
                   .count = 100,
                   .type = DataType::kInt32,
                   .op = ReduceOp::kMax,
                   .root = 1};
      const auto input = InputOf<std::int32_t>(call, c.rank(), c.size());
      const auto expected = OutputOf<std::int32_t>(call, c.rank(), c.size());
      for (const bool later : {false, true}) {
        auto receive = Poisoned<std::int32_t>(expected.size());
        call.send = input.data();
        call.receive = receive.data();
        if (later) {
          RINGPIPE_ASSIGN_OR_RETURN(Request request, named.later(c, call));
          RINGPIPE_RETURN_IF_ERROR(request.Wait());
        } else {
          RINGPIPE_RETURN_IF_ERROR(named.now(c, call));
        }
        RINGPIPE_RETURN_IF_ERROR(
            Compare(receive, expected, CollectiveName(named.collective)));
      }
    }
    return Status::Ok();
  });
}

TEST(NamedCallTest, EachWithCountsIsTheCallOfThatName) {
  ExpectRanks(Way::kHostMemory, 3, [](Communicator& c) -> Status {
    const std::vector<std::size_t> counts = {7, 0, 11};
    const DataType type = DataType::kInt32;
    const auto test = [&](Collective collective, const auto& make) -> Status {
      const Call call = {.collective = collective,
                         .type = type,
                         .op = ReduceOp::kMax,
                         .root = 2,
                         .counts = counts};
      const auto send = InputOf<std::int32_t>(call, c.rank(), c.size());
      const auto expected = OutputOf<std::int32_t>(call, c.rank(), c.size());
      auto receive = Poisoned<std::int32_t>(expected.size());
      RINGPIPE_RETURN_IF_ERROR(make(send.data(), receive.data()));
      return Compare(receive, expected, CollectiveName(collective));
    };
    RINGPIPE_RETURN_IF_ERROR(
        test(Collective::kReduceScatter, [&](const auto* in, auto* out) {
          return c.ReduceScatterV(in, out, counts, type, ReduceOp::kMax);
        }));
    RINGPIPE_RETURN_IF_ERROR(
        test(Collective::kAllGather, [&](const auto* in, auto* out) {
          return c.AllGatherV(in, out, counts, type);
        }));
    RINGPIPE_RETURN_IF_ERROR(
        test(Collective::kGather, [&](const auto* in, auto* out) {
          return c.GatherV(in, out, counts, type, 2);
        }));
    return test(Collective::kScatter, [&](const auto* in, auto* out) {
      return c.ScatterV(in, out, counts, type, 2);
    });
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
    EXPECT_EQ(listed.size(), 2U)
        << "tests/ways.cc lacks " << CollectiveName(info.collective) << " by "
        << info.name;
  }
}

TEST(ListTest, HasWhatTheEngineChoosesForEveryCall) {
  for (int i = 0; i < kCollectives; ++i) {
    const auto cases = CasesOf(static_cast<Collective>(i));
    EXPECT_TRUE(
        std::any_of(cases.begin(), cases.end(),
                    [](const auto& own) { return own.algorithm.empty(); }))
        << "tests/ways.cc, " << CollectiveName(static_cast<Collective>(i));
  }
}

}  // namespace
}  // namespace ringpipe::testing
