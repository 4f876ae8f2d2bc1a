// Calls with scales: every reduction, by every algorithm, gives the same as one
// that scales its inputs before and its result after it.
#include <bit>
#include <cstdint>
#include <string>
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

// Powers of two: the results are exact in every type. One rank does not scale.
double PrescaleOf(int rank) {
  constexpr double kScales[] = {2, 1, 0.5, -2, 1, 4};
  return kScales[rank % std::size(kScales)];
}
constexpr double kPostscale = 0.5;

template <typename T>
T Times(T value, double factor) {
  return static_cast<T>(value * static_cast<float>(factor));
}

template <typename T>
T Reduced(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return static_cast<T>(a + b);
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kProd:
      return static_cast<T>(a * b);
  }
  return a;
}

// Of elements [begin, begin + count) of the whole.
template <typename T>
std::vector<T> ScaledResults(int size, std::size_t begin, std::size_t count,
                             ReduceOp op) {
  std::vector<T> results;
  for (std::size_t i = begin; i < begin + count; ++i) {
    T result = Times(InputValue<T>(0, i, op), PrescaleOf(0));
    for (int rank = 1; rank < size; ++rank) {
      result = Reduced(op, result,
                       Times(InputValue<T>(rank, i, op), PrescaleOf(rank)));
    }
    if (op == ReduceOp::kAverage) {
      result = static_cast<T>(result / static_cast<T>(size));
    }
    results.push_back(Times(result, kPostscale));
  }
  return results;
}

struct How {
  bool in_place = false;
  bool in_pieces = false;
};
constexpr How kHows[] = {{}, {.in_place = true}, {.in_pieces = true}};

template <typename T>
Status TestCall(Communicator& c, Call call, const How& how) {
  const bool scatters = call.collective == Collective::kReduceScatter;
  const bool receives =
      call.collective != Collective::kReduce || c.rank() == call.root;
  const std::size_t own = scatters ? c.rank() * call.count : 0;
  const std::size_t length = receives ? call.count : 0;
  std::vector<T> send =
      Inputs<T>(c.rank(), 0, call.count * (scatters ? c.size() : 1), call.op);
  std::vector<T> receive = Poisoned<T>(length);
  Scattered<T> scattered(send, c.rank());
  Scattered<T> target(receive, c.rank() + 1);
  const auto send_list = scattered.Pieces(0, send.size());
  const auto receive_list = target.Pieces(0, length);
  if (how.in_pieces) {
    call.send_list = send_list;
    call.receive_list = receive_list;
  } else {
    call.send = send.data();
    call.receive = how.in_place ? send.data() + own : receive.data();
  }
  call.prescale = PrescaleOf(c.rank());
  call.postscale = kPostscale;
  RINGPIPE_RETURN_IF_ERROR(c.Run(call));
  const auto expected = ScaledResults<T>(c.size(), own, length, call.op);
  const std::vector<T> got =
      how.in_pieces ? target.Values(0, length)
      : how.in_place
          ? std::vector<T>(send.begin() + own, send.begin() + own + length)
          : receive;
  for (std::size_t i = 0; i < length; ++i) {
    if (!(got[i] == expected[i])) {
      return {StatusCode::kInternal,
              std::string(Name(call.type)) + " " + std::string(Name(call.op)) +
                  (how.in_place ? " in place" : "") +
                  (how.in_pieces ? " in pieces" : "") + ", element " +
                  std::to_string(i) + " of " + std::to_string(length) + ": " +
                  std::to_string(static_cast<double>(got[i])) + ", not " +
                  std::to_string(static_cast<double>(expected[i]))};
    }
  }
  return Status::Ok();
}

class ScalingTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, ScalingTest,
                         ::testing::ValuesIn(WaysOf("scaling_test")),
                         NameOfWay);

TEST_P(ScalingTest, IsRightByEveryAlgorithm) {
  constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kFloat64,
                                 DataType::kFloat16, DataType::kBfloat16};
  for (const AlgorithmInfo& info : Algorithms()) {
    for (const int size : {1, 2, 3, 4, 6}) {
      if (!InfoOf(info.collective).reduces || !Exists(info, {0, size})) {
        continue;
      }
      SCOPED_TRACE(std::string(info.name) + ", " + std::to_string(size));
      ExpectRanks(
          GetParam(), size,
          [&](Communicator& c) -> Status {
            std::size_t turn = 0;
            for (const std::size_t count : {1U, 7U, 1000U, 30'000U}) {
              for (const ReduceOp op : kReduceOps) {
                const Call call = {.collective = info.collective,
                                   .count = count,
                                   .type = kTypes[turn % std::size(kTypes)],
                                   .op = op,
                                   .root = size - 1};
                const How& how = kHows[turn % std::size(kHows)];
                ++turn;
                RINGPIPE_RETURN_IF_ERROR(
                    WithType(call.type, [&]<typename T>() -> Status {
                      if constexpr (std::is_integral_v<T>) {
                        return Status::Ok();
                      } else {
                        return TestCall<T>(c, call, how);
                      }
                    }));
              }
            }
            return Status::Ok();
          },
          [&](int /*rank*/, CommunicatorOptions& options) {
            options.environment.algorithm =
                std::string(CollectiveName(info.collective)) + ":" +
                std::string(info.name);
          });
    }
  }
}

// A rank's own input is scaled where it is read, which is in as many places as
// there are steps; each must give what the others got.
TEST_P(ScalingTest, AllRanksGetTheSameBitsOfFactorsThatRound) {
  ExpectRanks(GetParam(), 5, [](Communicator& c) -> Status {
    constexpr std::size_t kCount = 20'000;
    std::vector<float> send(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      send[i] = 1.0F / static_cast<float>(1 + (i * 7 + c.rank() * 13) % 1001);
    }
    std::vector<float> receive(kCount);
    RINGPIPE_RETURN_IF_ERROR(c.Run({.collective = Collective::kAllReduce,
                                    .send = send.data(),
                                    .receive = receive.data(),
                                    .count = kCount,
                                    .type = DataType::kFloat32,
                                    .prescale = 1.0 / (3 + c.rank()),
                                    .postscale = 0.1}));
    std::vector<std::uint32_t> all(kCount * c.size());
    RINGPIPE_RETURN_IF_ERROR(
        c.AllGather(receive.data(), all.data(), kCount, DataType::kUint32));
    for (std::size_t i = kCount; i < all.size(); ++i) {
      EXPECT_EQ(all[i], all[i % kCount]) << "element " << i % kCount;
    }
    return Status::Ok();
  });
}

// The product is rounded to the type before it is added: as it would be by a
// program that scales in memory.
TEST_P(ScalingTest, ScalesAsAProgramWouldInMemory) {
  ExpectRanks(GetParam(), 2, [](Communicator& c) -> Status {
    constexpr std::size_t kCount = 5000;
    std::vector<float> scaled(kCount), plain(kCount), sum(kCount);
    const auto factor = static_cast<float>(0.1 + c.rank());
    for (std::size_t i = 0; i < kCount; ++i) {
      plain[i] = 1.0F / static_cast<float>(1 + i);
      scaled[i] = plain[i] * factor;
    }
    RINGPIPE_RETURN_IF_ERROR(c.AllReduce(scaled.data(), sum.data(), kCount,
                                         DataType::kFloat32, ReduceOp::kSum));
    RINGPIPE_RETURN_IF_ERROR(c.Run({.collective = Collective::kAllReduce,
                                    .send = plain.data(),
                                    .receive = plain.data(),
                                    .count = kCount,
                                    .type = DataType::kFloat32,
                                    .prescale = 0.1 + c.rank()}));
    for (std::size_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(plain[i]),
                std::bit_cast<std::uint32_t>(sum[i]))
          << "element " << i;
    }
    return Status::Ok();
  });
}

}  // namespace
}  // namespace ringpipe::testing
