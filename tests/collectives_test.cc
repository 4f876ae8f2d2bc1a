// Every collective gives the right result: for all types and operations, rank
// counts and element counts, in place and out of place, blocking and not, by
// every algorithm; tests/ways.cc lists the cases.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/algorithms.h"
#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/rank_threads.h"
#include "tests/reference.h"
#include "tests/scattered.h"
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

enum class Memory { kPrivate, kRegistered, kAllocated };

// How a rank makes a call. The ranks of one call may differ in this.
struct How {
  bool in_place = false;
  bool asynchronous = false;
  Memory memory = Memory::kPrivate;
  bool in_pieces = false;  // of private memory
};

constexpr How kHows[] = {{}, {.in_place = true}, {.asynchronous = true}};
constexpr How kHowsInPieces[] = {
    {.in_pieces = true},
    {.in_place = true, .in_pieces = true},
    {.asynchronous = true, .in_pieces = true},
};

std::string Words(std::string_view call, const How& how) {
  return std::string(call) + (how.in_place ? " in place" : "") +
         (how.asynchronous ? ", asynchronous" : "") +
         (how.in_pieces ? ", in pieces" : "");
}

// A buffer of a call, in memory of one of the kinds.
template <typename T>
class Buffer {
 public:
  Buffer(Communicator& c, Memory memory, std::vector<T> values)
      : c_(c), memory_(memory), values_(std::move(values)) {
    data_ = values_.data();
    if (memory_ == Memory::kAllocated && !values_.empty()) {
      auto allocated = c_.Allocate(values_.size() * sizeof(T));
      EXPECT_TRUE(allocated.ok()) << allocated.status().ToString();
      data_ = allocated.ok() ? static_cast<T*>(*allocated) : nullptr;
      std::copy_n(values_.data(), data_ == nullptr ? 0 : values_.size(), data_);
    } else if (memory_ == Memory::kRegistered && !values_.empty()) {
      const Status status = c_.Register(data_, values_.size() * sizeof(T));
      EXPECT_TRUE(status.ok()) << status.ToString();
    }
  }
  ~Buffer() {
    if (values_.empty() || memory_ == Memory::kPrivate) {
      return;
    }
    const Status status =
        memory_ == Memory::kAllocated ? c_.Free(data_) : c_.Deregister(data_);
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  T* data() const { return data_; }

 private:
  Communicator& c_;
  const Memory memory_;
  std::vector<T> values_;
  T* data_;
};

// Makes the call and, where it is asynchronous, waits for its end.
// `after_start`: nothing that it does may make a difference.
template <typename F>
Status Make(Communicator& c, const How& how, const Call& call, F after_start) {
  if (!how.asynchronous) {
    return c.Run(call);
  }
  RINGPIPE_ASSIGN_OR_RETURN(Request request, c.Start(call));
  after_start();
  return request.Wait();
}

template <typename T>
Status Compare(const T* got, const std::vector<T>& expected,
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
Status Compare(const std::vector<T>& got, const std::vector<T>& expected,
               const std::string& what) {
  return Compare(got.data(), expected, what);
}

// Where a rank's input and output lie in memory that they share, in elements.
struct InPlace {
  std::size_t input = 0;
  std::size_t output = 0;
};
InPlace InPlaceOf(Collective collective, std::size_t part) {
  switch (collective) {
    case Collective::kReduceScatter:
    case Collective::kScatter:
      return {.output = part};
    case Collective::kAllGather:
    case Collective::kGather:
      return {.input = part};
    default:
      return {};
  }
}

// The same with lists of buffers, cut differently on each rank; one of them may
// be a buffer.
template <typename T>
Status MakeInPieces(Communicator& c, Call call, const How& how,
                    const std::vector<T>& values, const InPlace& at,
                    std::size_t input, const std::vector<T>& expected,
                    bool in_place) {
  const std::uint64_t seed = 1000 * call.count + 10 * c.rank();
  Scattered<T> in(values, seed);
  Scattered<T> out(Poisoned<T>(in_place ? 0 : expected.size()), seed + 1);
  Scattered<T>& target = in_place ? in : out;
  std::vector<ringpipe::Buffer> send =
      in.Pieces(in_place ? at.input : 0, input);
  std::vector<ringpipe::Buffer> receive =
      target.Pieces(in_place ? at.output : 0, expected.size());
  call.send_list = send;
  call.receive_list = receive;
  auto together = Poisoned<T>(expected.size());
  const bool receives_together = !in_place && seed % 3 == 0;
  if (receives_together) {
    call.receive_list = {};
    call.receive = together.data();
  }
  RINGPIPE_RETURN_IF_ERROR(Make(c, how, call, [&] {
    std::fill(send.begin(), send.end(), ringpipe::Buffer{});
    std::fill(receive.begin(), receive.end(), ringpipe::Buffer{});
  }));
  EXPECT_TRUE(in.GapsAreWhole() && out.GapsAreWhole())
      << "something was written between the pieces";
  return Compare(receives_together
                     ? together
                     : target.Values(in_place ? at.output : 0, expected.size()),
                 expected, Words(CollectiveName(call.collective), how));
}

// Makes the call, whose buffers are not set, in each of these ways, and
// compares the result with what is expected.
template <typename T>
Status TestCall(Communicator& c, Call call, std::span<const How> hows = kHows) {
  const auto input = InputOf<T>(call, c.rank(), c.size());
  const auto expected = OutputOf<T>(call, c.rank(), c.size());
  const InPlace at = InPlaceOf(call.collective, PartOf(call, c.rank()).first);
  for (const How& how : hows) {
    const bool in_place = how.in_place && !input.empty() && !expected.empty() &&
                          call.collective != Collective::kAllToAll;
    std::vector<T> values = input;
    if (in_place) {
      values = Poisoned<T>(
          std::max(at.input + input.size(), at.output + expected.size()));
      std::copy(input.begin(), input.end(), values.data() + at.input);
    }
    if (how.in_pieces) {
      RINGPIPE_RETURN_IF_ERROR(MakeInPieces<T>(
          c, call, how, values, at, input.size(), expected, in_place));
      continue;
    }
    const Buffer<T> in(c, how.memory, std::move(values));
    const Buffer<T> out(c, how.memory,
                        Poisoned<T>(in_place ? 0 : expected.size()));
    T* const receive = in_place ? in.data() + at.output : out.data();
    call.send = in_place ? in.data() + at.input : in.data();
    call.receive = receive;
    RINGPIPE_RETURN_IF_ERROR(Make(c, how, call, [] {}));
    RINGPIPE_RETURN_IF_ERROR(Compare(
        receive, expected, Words(CollectiveName(call.collective), how)));
  }
  return Status::Ok();
}

// The same by the call's type.
Status TestCallOfType(Communicator& c, const Call& call,
                      std::span<const How> hows = kHows) {
  return WithType(call.type,
                  [&]<typename T>() { return TestCall<T>(c, call, hows); })
      .WithContext(std::string(Name(call.type)) + " " +
                   std::string(Name(call.op)) + ", count " +
                   std::to_string(call.count) + ", root " +
                   std::to_string(call.root));
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

// Drawn by each rank for itself.
How RandomHow(std::mt19937_64& random) {
  const auto below = [&random](unsigned limit) { return random() % limit; };
  return {.in_place = below(2) == 1,
          .asynchronous = below(2) == 1,
          .memory = static_cast<Memory>(below(3)),
          .in_pieces = below(3) == 0};
}

// The same on every rank but for how each makes it.
Status MakeRandomCall(Communicator& c, RandomJob& job, const How& how) {
  Call call;
  call.type = kDataTypes[job.Below(kDataTypes.size())];
  call.op = kReduceOps[job.Below(kReduceOps.size())];
  call.count = job.Below(1 << job.Below(job.kMostElementsLog));
  call.root = job.Below(c.size());
  call.collective = static_cast<Collective>(job.Below(kCollectives));
  std::vector<std::size_t> counts;
  if (InfoOf(call.collective).takes_counts() && job.Below(2) == 1) {
    for (int rank = 0; rank < c.size(); ++rank) {
      counts.push_back(job.Below(3) == 0 ? 0 : job.Below(2 * call.count + 1));
    }
    call.count = 0;
    call.counts = counts;
  }
  return TestCallOfType(c, call, std::span<const How>(&how, 1));
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
      [&job, seed = seed](Communicator& c) -> Status {
        RandomJob own = job;
        std::mt19937_64 of_rank(1000 * seed + c.rank());
        for (int call = 0; call < 8; ++call) {
          RINGPIPE_RETURN_IF_ERROR(MakeRandomCall(c, own, RandomHow(of_rank)));
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
