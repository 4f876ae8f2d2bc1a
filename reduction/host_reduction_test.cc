#include "reduction/host_reduction.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/targets.h"

namespace ringpipe {
namespace {

// The reference, one element at a time. Integers go through uint64_t, which
// wraps around.
template <typename T>
T Reference(ReduceOp op, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    const auto ua = static_cast<std::uint64_t>(a);
    const auto ub = static_cast<std::uint64_t>(b);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAverage:
        return static_cast<T>(ua + ub);
      case ReduceOp::kProd:
        return static_cast<T>(ua * ub);
      case ReduceOp::kMin:
        return b < a ? b : a;
      case ReduceOp::kMax:
        return a < b ? b : a;
    }
  } else {
    const bool nan = std::isnan(a) || std::isnan(b);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAverage:
        return a + b;
      case ReduceOp::kProd:
        return a * b;
      case ReduceOp::kMin:
        return nan ? std::numeric_limits<T>::quiet_NaN() : (b < a ? b : a);
      case ReduceOp::kMax:
        return nan ? std::numeric_limits<T>::quiet_NaN() : (a < b ? b : a);
    }
  }
  return T{};
}

template <typename T>
bool Same(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return a == b || (std::isnan(a) && std::isnan(b));
  } else {
    return a == b;
  }
}

// Integers: all bit patterns, so that most sums and products overflow; about
// one in eight is an extreme. Floating point: finite ones of any sign, and one
// in eight NaN, an infinity, a zero or a denormal.
template <typename T>
T RandomValue(std::mt19937_64& random) {
  using Limits = std::numeric_limits<T>;
  const std::uint64_t bits = random();
  if (bits % 8 == 0) {
    const T extremes[] = {Limits::lowest(),
                          Limits::max(),
                          T{0},
                          T{1},
                          T(-1),
                          Limits::has_quiet_NaN ? Limits::quiet_NaN() : T{2},
                          Limits::has_infinity ? Limits::infinity() : T{3},
                          Limits::has_infinity ? -Limits::infinity() : T{5},
                          Limits::denorm_min()};
    return extremes[(bits >> 8) % std::size(extremes)];
  }
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(bits >> 8);
  } else {
    return static_cast<T>(std::ldexp(static_cast<double>(bits >> 11) - 0x1p52,
                                     static_cast<int>(bits >> 5 & 31) - 60));
  }
}

template <typename T>
constexpr DataType TypeOf() {
  if constexpr (std::is_same_v<T, float>) {
    return DataType::kFloat32;
  } else if constexpr (std::is_same_v<T, double>) {
    return DataType::kFloat64;
  } else if constexpr (std::is_same_v<T, std::int32_t>) {
    return DataType::kInt32;
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    return DataType::kInt64;
  } else if constexpr (std::is_same_v<T, std::int8_t>) {
    return DataType::kInt8;
  } else {
    return DataType::kUint8;
  }
}

// Calls `check(name)` once for each instruction set of this CPU that the
// kernels were compiled for (or would fall back to), with that one chosen.
template <typename Check>
void ForEachInstructionSet(const Check& check) {
  const std::int64_t supported = hwy::SupportedTargets();
  for (std::int64_t rest = supported; rest != 0; rest &= rest - 1) {
    const std::int64_t target = rest & -rest;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    check(hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(supported);
}

template <typename T>
class HostReductionTest : public testing::Test {
 protected:
  static constexpr std::size_t kMaxCount = 300;
  static constexpr std::size_t kMaxOffset = 3;
  static constexpr std::size_t kSize = kMaxCount + kMaxOffset + 8;

  std::vector<T> Random() {
    std::vector<T> values(kSize);
    for (T& value : values) {
      value = RandomValue<T>(random_);
    }
    return values;
  }

  // Every element of [offset, offset + count) is the reference's, all others
  // are as before.
  void CheckReduction(ReduceOp op, std::size_t offset, std::size_t count) {
    const std::vector<T> before = Random();
    const std::vector<T> source = Random();
    std::vector<T> after = before;
    // An offset of its own for the source: the two differ in alignment.
    FindReduction(TypeOf<T>(), op)(after.data() + offset,
                                   source.data() + kMaxOffset - offset, count);
    for (std::size_t i = 0; i < kSize; ++i) {
      const bool inside = i >= offset && i < offset + count;
      const T expected =
          inside ? Reference(op, before[i], source[i + kMaxOffset - 2 * offset])
                 : before[i];
      ASSERT_TRUE(Same(after[i], expected))
          << "element " << i << ": " << +after[i] << " not " << +expected;
    }
  }

  std::mt19937_64 random_{42};
};

using ElementTypes = testing::Types<float, double, std::int32_t, std::int64_t,
                                    std::int8_t, std::uint8_t>;
TYPED_TEST_SUITE(HostReductionTest, ElementTypes);

TYPED_TEST(HostReductionTest, EveryCountAndOffsetIsLikeTheReference) {
  ForEachInstructionSet([this](const char* instruction_set) {
    for (const ReduceOp op : kReduceOps) {
      for (std::size_t count = 0; count <= this->kMaxCount; ++count) {
        SCOPED_TRACE(std::string(instruction_set) + " " +
                     std::string(Name(op)) + " count " + std::to_string(count));
        this->CheckReduction(op, count % (this->kMaxOffset + 1), count);
        if (this->HasFatalFailure()) {
          return;
        }
      }
    }
  });
}

TYPED_TEST(HostReductionTest, AverageDividesTowardZeroByEverySize) {
  ForEachInstructionSet([this](const char* instruction_set) {
    const FinishFunction finish =
        FindFinish(TypeOf<TypeParam>(), ReduceOp::kAverage);
    for (const int size : {1, 2, 3, 5, 127, 128, 129, 255, 256, 300, 65536}) {
      SCOPED_TRACE(std::string(instruction_set) + " " + std::to_string(size));
      const std::vector<TypeParam> before = this->Random();
      std::vector<TypeParam> after = before;
      const std::size_t count = this->kSize - 2;
      finish(after.data() + 1, count, size);
      for (std::size_t i = 0; i < before.size(); ++i) {
        TypeParam expected = before[i];
        if (i >= 1 && i < 1 + count) {
          if constexpr (std::is_integral_v<TypeParam>) {
            expected = static_cast<TypeParam>(
                static_cast<std::int64_t>(before[i]) / size);
          } else {
            expected = before[i] / static_cast<TypeParam>(size);
          }
        }
        ASSERT_TRUE(Same(after[i], expected)) << "element " << i;
      }
    }
  });
}

TYPED_TEST(HostReductionTest, OnlyAverageHasAFinishingStep) {
  for (const ReduceOp op :
       {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProd}) {
    EXPECT_EQ(FindFinish(TypeOf<TypeParam>(), op), nullptr) << Name(op);
  }
}

// The bits do not depend on where in a vector, or in its tail, an element is.
TYPED_TEST(HostReductionTest, TheResultDoesNotDependOnThePosition) {
  const std::vector<TypeParam> source = this->Random();
  const std::vector<TypeParam> before = this->Random();
  for (const ReduceOp op : kReduceOps) {
    const ReduceFunction reduce = FindReduction(TypeOf<TypeParam>(), op);
    std::vector<TypeParam> together = before;
    reduce(together.data(), source.data(), together.size());
    std::vector<TypeParam> apart = before;
    for (std::size_t i = 0; i < apart.size(); ++i) {
      reduce(&apart[i], &source[i], 1);
    }
    EXPECT_EQ(std::memcmp(together.data(), apart.data(),
                          apart.size() * sizeof(TypeParam)),
              0)
        << Name(op);
  }
}

template <typename T>
class HostReductionNanTest : public testing::Test {};
using FloatTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(HostReductionNanTest, FloatTypes);

TYPED_TEST(HostReductionNanTest, MinAndMaxAreNanWhereEitherIs) {
  const TypeParam nan = std::numeric_limits<TypeParam>::quiet_NaN();
  ForEachInstructionSet([nan](const char* instruction_set) {
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      std::vector<TypeParam> accumulator(100, 1);
      std::vector<TypeParam> source(100, 2);
      accumulator[3] = nan;
      source[50] = nan;
      accumulator[99] = nan;
      source[99] = nan;
      FindReduction(TypeOf<TypeParam>(), op)(accumulator.data(), source.data(),
                                             100);
      for (std::size_t i = 0; i < 100; ++i) {
        EXPECT_EQ(std::isnan(accumulator[i]), i == 3 || i == 50 || i == 99)
            << instruction_set << " " << Name(op) << " element " << i;
      }
    }
  });
}

TEST(HostReductionEdgeTest, IntegersWrapAround) {
  std::int8_t byte = 127;
  const std::int8_t one = 1;
  FindReduction(DataType::kInt8, ReduceOp::kSum)(&byte, &one, 1);
  EXPECT_EQ(byte, -128);
  std::uint8_t unsigned_byte = 200;
  const std::uint8_t three = 3;
  FindReduction(DataType::kUint8, ReduceOp::kProd)(&unsigned_byte, &three, 1);
  EXPECT_EQ(unsigned_byte, 600 % 256);
  std::int64_t large = std::numeric_limits<std::int64_t>::max();
  const std::int64_t two = 2;
  FindReduction(DataType::kInt64, ReduceOp::kProd)(&large, &two, 1);
  EXPECT_EQ(large, -2);
}

TEST(HostReductionEdgeTest, AverageOfFewElementsAmongManyRanksIsZero) {
  std::int8_t values[] = {-128, 127, 1};
  FindFinish(DataType::kInt8, ReduceOp::kAverage)(values, 3, 65536);
  EXPECT_EQ(values[0], 0);
  EXPECT_EQ(values[1], 0);
  EXPECT_EQ(values[2], 0);
}

TEST(HostReductionEdgeTest, NoElementsMayHaveNoAddress) {
  for (const DataType type : kDataTypes) {
    for (const ReduceOp op : kReduceOps) {
      FindReduction(type, op)(nullptr, nullptr, 0);
    }
    FindFinish(type, ReduceOp::kAverage)(nullptr, 0, 2);
  }
}

TEST(HostReductionEdgeTest, ValuesOutsideTheEnumerationsHaveNoFunction) {
  const auto type = static_cast<DataType>(99);
  const auto op = static_cast<ReduceOp>(99);
  EXPECT_EQ(FindReduction(type, ReduceOp::kSum), nullptr);
  EXPECT_EQ(FindReduction(DataType::kInt8, op), nullptr);
  EXPECT_EQ(FindFinish(type, ReduceOp::kAverage), nullptr);
  EXPECT_EQ(FindFinish(DataType::kInt8, op), nullptr);
}

}  // namespace
}  // namespace ringpipe
