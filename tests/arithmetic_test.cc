// Results have the same bits on every rank, also where one rank's program has
// told the processor to compute in another way.
#include <xmmintrin.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

constexpr unsigned kFlushes = 0x8040;  // denormal results and operands
constexpr unsigned kRoundsTowardZero = 0x6000;
constexpr unsigned kFlags = 0x3f;  // what has happened, which calls may change

// A thread's own settings, as a program that is compiled with -ffast-math has
// them, or that sets a rounding mode.
class OtherArithmetic {
 public:
  OtherArithmetic() { _mm_setcsr(kSetting); }
  ~OtherArithmetic() { _mm_setcsr(before_); }
  static bool IsSet() { return (_mm_getcsr() & ~kFlags) == kSetting; }

 private:
  static constexpr unsigned kSetting = 0x1f80 | kFlushes | kRoundsTowardZero;
  const unsigned before_ = _mm_getcsr();
};

// What two ranks add up: denormals, and what has to be rounded up.
float ValueOf(int rank, std::size_t i) {
  if (i % 2 == 0) {
    return std::ldexp(1.0F, -140);
  }
  return rank == 0 ? 1.0F : std::ldexp(1.5F, -24);
}
float SumAt(std::size_t i) {
  return i % 2 == 0 ? std::ldexp(1.0F, -139) : 1 + std::ldexp(1.0F, -23);
}

Status AddUp(Communicator& c, std::size_t count, bool later) {
  std::vector<float> send(count);
  std::vector<float> receive(count);
  std::vector<float> sums(count);
  for (std::size_t i = 0; i < count; ++i) {
    send[i] = ValueOf(c.rank(), i);
    sums[i] = SumAt(i);
  }
  const auto add = [&]() -> Status {
    if (!later) {
      return c.AllReduce(send.data(), receive.data(), count, DataType::kFloat32,
                         ReduceOp::kSum);
    }
    RINGPIPE_ASSIGN_OR_RETURN(
        Request request, c.AllReduceAsync(send.data(), receive.data(), count,
                                          DataType::kFloat32, ReduceOp::kSum));
    return request.Wait();
  };
  if (c.rank() == 0) {
    RINGPIPE_RETURN_IF_ERROR(add());
  } else {
    const OtherArithmetic other;
    RINGPIPE_RETURN_IF_ERROR(add());
    if (!OtherArithmetic::IsSet()) {
      return {StatusCode::kInternal, "the call has changed the settings"};
    }
  }
  const bool right = std::equal(
      receive.begin(), receive.end(), sums.begin(), [](float a, float b) {
        return std::fpclassify(a) == std::fpclassify(b) &&
               std::signbit(a) == std::signbit(b) && a == b;
      });
  return right ? Status::Ok()
               : Status(StatusCode::kInternal,
                        "a wrong sum among " + std::to_string(count));
}

class ArithmeticTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, ArithmeticTest,
                         ::testing::ValuesIn(WaysOf("arithmetic_test")),
                         NameOfWay);

TEST_P(ArithmeticTest, OfOneRankThatFlushesAndRoundsDownChangesNoResult) {
  ExpectRanks(GetParam(), 2, [](Communicator& c) -> Status {
    for (const std::size_t count : {2, 3000, 1'000'000}) {
      RINGPIPE_RETURN_IF_ERROR(AddUp(c, count, /*later=*/false));
    }
    for (const std::size_t count : {2, 3000, 1'000'000}) {
      RINGPIPE_RETURN_IF_ERROR(AddUp(c, count, /*later=*/true));
    }
    return Status::Ok();
  });
}

}  // namespace
}  // namespace ringpipe::testing
