#include "reduction/host_reduction.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "reduction/instruction_sets.h"

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

// To the bit, but for which NaN a NaN is.
template <typename T>
bool Identical(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return (a == b && std::signbit(a) == std::signbit(b)) ||
           (std::isnan(a) && std::isnan(b));
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
  } else if constexpr (std::is_same_v<T, std::uint8_t>) {
    return DataType::kUint8;
  } else if constexpr (std::is_same_v<T, std::uint32_t>) {
    return DataType::kUint32;
  } else {
    return DataType::kUint64;
  }
}

template <typename T>
class HostReductionTest : public testing::Test {
 protected:
  static constexpr std::size_t kMaxCount = 300;
  static constexpr std::size_t kMaxOffset = 3;
  static constexpr std::size_t kSize = kMaxCount + kMaxOffset + 8;

  HostReductionTest() {
    for (T& value : pool_) {
      value = RandomValue<T>(random_);
    }
  }

  // kSize values from anywhere in a pool that is made once.
  std::vector<T> Random() {
    const auto begin = pool_.begin() +
                       static_cast<std::ptrdiff_t>(random_() % (kPool - kSize));
    return {begin, begin + kSize};
  }

  // The memory of a reduction: own, what was received, and some that is
  // neither. The target is the one with number `place`. Their offsets differ,
  // and with them their alignment.
  struct Operands {
    int sources;
    int place;
    std::vector<std::vector<T>> memory;

    std::size_t Offset(int operand) const {
      return (memory.size() + 3 * static_cast<std::size_t>(operand)) %
             (kMaxOffset + 1);
    }
    T* At(int operand) { return memory[operand].data() + Offset(operand); }
    const T* At(int operand) const {
      return memory[operand].data() + Offset(operand);
    }
    // In one pass.
    void Reduce(ReduceOp op, std::size_t count) {
      std::vector<const void*> received;
      for (int s = 1; s <= sources; ++s) {
        received.push_back(At(s));
      }
      FindReduction(TypeOf<T>(), op)(At(place), At(0), received.data(), sources,
                                     count);
    }
  };

  Operands RandomOperands(int sources, int place) {
    Operands operands{sources, place, {}};
    for (int i = 0; i < sources + 2; ++i) {
      operands.memory.push_back(Random());
    }
    return operands;
  }

  // The target's elements are the reference's; all others, and all of the
  // other memory, are as before.
  void CheckReduction(ReduceOp op, int sources, int place, std::size_t count) {
    const Operands before = RandomOperands(sources, place);
    Operands after = before;
    after.Reduce(op, count);
    std::vector<T> expected = before.memory[place];
    T* const target = expected.data() + before.Offset(place);
    std::copy_n(before.At(0), count, target);
    for (int s = 1; s <= sources; ++s) {
      const T* const source = before.At(s);
      for (std::size_t i = 0; i < count; ++i) {
        target[i] = Reference(op, target[i], source[i]);
      }
    }
    const T* const result = after.memory[place].data();
    for (std::size_t i = 0; i < kSize; ++i) {
      if (!Same(result[i], expected[i])) {
        FAIL() << sources << " sources, target " << place << ", element " << i
               << ": " << +result[i] << " not " << +expected[i];
      }
    }
    for (int k = 0; k < sources + 2; ++k) {
      const auto is = std::as_bytes(std::span(after.memory[k]));
      const auto was = std::as_bytes(std::span(before.memory[k]));
      const bool unchanged = std::memcmp(is.data(), was.data(), is.size()) == 0;
      ASSERT_TRUE(unchanged || k == place)
          << sources << " sources, target " << place << ": operand " << k
          << " was written";
    }
  }

  static constexpr std::size_t kPool = 8192;
  static constexpr int kMaxSources = 5;

  std::mt19937_64 random_{42};
  std::vector<T> pool_ = std::vector<T>(kPool);
};

using ElementTypes =
    testing::Types<float, double, std::int32_t, std::int64_t, std::int8_t,
                   std::uint8_t, std::uint32_t, std::uint64_t>;
TYPED_TEST_SUITE(HostReductionTest, ElementTypes);

// With one source, and with 2 to 5 in turn; with the target apart from all
// operands, and in the place of each of them, in turn too.
TYPED_TEST(HostReductionTest, EveryCountAndPlaceIsLikeTheReference) {
  ForEachInstructionSet([this](const char* instruction_set) {
    for (const ReduceOp op : kReduceOps) {
      for (std::size_t count = 0; count <= this->kMaxCount; ++count) {
        SCOPED_TRACE(std::string(instruction_set) + " " +
                     std::string(Name(op)) + " count " + std::to_string(count));
        const int turn = static_cast<int>(count) + static_cast<int>(op);
        this->CheckReduction(op, 1, turn % 3, count);
        const int sources = 2 + turn % (this->kMaxSources - 1);
        this->CheckReduction(op, sources, turn / 4 % (sources + 2), count);
        if (this->HasFatalFailure()) {
          return;
        }
      }
    }
  });
}

// To the bit: what a schedule gives does not depend on which of its reductions
// were done together.
TYPED_TEST(HostReductionTest, OnePassIsTheSameAsOneReductionAfterTheOther) {
  ForEachInstructionSet([this](const char* instruction_set) {
    for (const ReduceOp op : kReduceOps) {
      const ReduceFunction reduce = FindReduction(TypeOf<TypeParam>(), op);
      for (int sources = 1; sources <= this->kMaxSources; ++sources) {
        for (const std::size_t count : {1, 7, 100, 300}) {
          auto together = this->RandomOperands(sources, sources + 1);
          std::vector<TypeParam> apart(together.At(0), together.At(0) + count);
          for (int s = 1; s <= sources; ++s) {
            const void* const received[] = {together.At(s)};
            reduce(apart.data(), apart.data(), received, 1, count);
          }
          together.Reduce(op, count);
          for (std::size_t i = 0; i < count; ++i) {
            ASSERT_TRUE(Identical(together.At(sources + 1)[i], apart[i]))
                << instruction_set << " " << Name(op) << ", " << sources
                << " sources, element " << i << " of " << count;
          }
        }
      }
    }
  });
}

TYPED_TEST(HostReductionTest, OperandsThatAreOnlyReadMayOverlap) {
  ForEachInstructionSet([this](const char* instruction_set) {
    const std::vector<TypeParam> memory = this->Random();
    const std::size_t count = this->kMaxCount;
    const void* const received[] = {&memory[1], &memory[3], &memory[1]};
    std::vector<TypeParam> target(count);
    FindReduction(TypeOf<TypeParam>(), ReduceOp::kSum)(
        target.data(), memory.data(), received, 3, count);
    for (std::size_t i = 0; i < count; ++i) {
      TypeParam expected = memory[i];
      for (const std::size_t offset : {1, 3, 1}) {
        expected = Reference(ReduceOp::kSum, expected, memory[i + offset]);
      }
      ASSERT_TRUE(Same(target[i], expected))
          << instruction_set << " element " << i;
    }
  });
}

TYPED_TEST(HostReductionTest, TheTargetMayBeSeveralOperandsAtOnce) {
  ForEachInstructionSet([this](const char* instruction_set) {
    const std::vector<TypeParam> before = this->Random();
    std::vector<TypeParam> after = before;
    const void* const received[] = {after.data(), after.data()};
    FindReduction(TypeOf<TypeParam>(), ReduceOp::kSum)(
        after.data(), after.data(), received, 2, after.size());
    for (std::size_t i = 0; i < after.size(); ++i) {
      const TypeParam twice = Reference(ReduceOp::kSum, before[i], before[i]);
      ASSERT_TRUE(Same(after[i], Reference(ReduceOp::kSum, twice, before[i])))
          << instruction_set << " element " << i;
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
            expected =
                static_cast<TypeParam>(static_cast<__int128>(before[i]) / size);
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

TYPED_TEST(HostReductionTest, ScalesFloatingPointTypesAlone) {
  ForEachInstructionSet([&](const char* instruction_set) {
    const ScaleFunction scale = FindScale(TypeOf<TypeParam>());
    if constexpr (std::is_integral_v<TypeParam>) {
      EXPECT_EQ(scale, nullptr);
    } else {
      using Factor =
          std::conditional_t<std::is_same_v<TypeParam, double>, double, float>;
      const std::vector<TypeParam> source = this->Random();
      for (const double factor : {0.1, -3.0, 1e-3, 0.0}) {
        std::vector<TypeParam> target = this->Random();
        const TypeParam before = target[0];
        scale(target.data() + 1, source.data() + 1, this->kSize - 2, factor);
        EXPECT_TRUE(Same(target[0], before));
        for (std::size_t i = 1; i < std::size_t{this->kSize} - 1; ++i) {
          const auto expected =
              static_cast<TypeParam>(source[i] * static_cast<Factor>(factor));
          ASSERT_TRUE(Same(target[i], expected))
              << instruction_set << " element " << i << " times " << factor;
        }
      }
    }
  });
}

// The target may be any operand; the others are as they were.
TYPED_TEST(HostReductionTest, ScalesTheOperandsAndTheResultOfAReduction) {
  if constexpr (!std::is_integral_v<TypeParam>) {
    const DataType type = TypeOf<TypeParam>();
    const Scaling scaling = {
        .own = 0.3, .received = -7, .complete = 3, .result = 1.1};
    for (const ReduceOp op : kReduceOps) {
      std::vector<TypeParam> operands[3] = {this->Random(), this->Random(),
                                            this->Random()};
      const std::vector<TypeParam> before[3] = {operands[0], operands[1],
                                                operands[2]};
      const std::size_t count = operands[0].size();
      // Step by step, in memory.
      std::vector<TypeParam> own(count), received(count);
      FindScale(type)(own.data(), operands[0].data(), count, scaling.own);
      FindScale(type)(received.data(), operands[1].data(), count,
                      scaling.received);
      const void* const sources[] = {received.data(), operands[2].data()};
      std::vector<TypeParam> expected(count);
      FindReduction(type, op)(expected.data(), own.data(), sources, 2, count);
      if (const FinishFunction finish = FindFinish(type, op)) {
        finish(expected.data(), count, scaling.complete);
      }
      FindScale(type)(expected.data(), expected.data(), count, scaling.result);
      for (int target = 0; target < 3; ++target) {
        const void* const both[] = {operands[1].data(), operands[2].data()};
        ReduceAndScale(type, op, operands[target].data(), operands[0].data(),
                       both, count, scaling);
        for (int i = 0; i < 3; ++i) {
          const auto& should = i == target ? expected : before[i];
          for (std::size_t at = 0; at < count; ++at) {
            ASSERT_TRUE(Same(operands[i][at], should[at]))
                << Name(op) << ", target " << target << ", operand " << i
                << ", element " << at;
          }
          operands[i] = before[i];
        }
      }
    }
  }
}

// The bits do not depend on where in a vector, or in its tail, an element is.
TYPED_TEST(HostReductionTest, TheResultDoesNotDependOnThePosition) {
  const std::vector<TypeParam> source = this->Random();
  const std::vector<TypeParam> before = this->Random();
  for (const ReduceOp op : kReduceOps) {
    const ReduceFunction reduce = FindReduction(TypeOf<TypeParam>(), op);
    std::vector<TypeParam> together = before;
    const void* const received[] = {source.data()};
    reduce(together.data(), together.data(), received, 1, together.size());
    std::vector<TypeParam> apart = before;
    for (std::size_t i = 0; i < apart.size(); ++i) {
      const void* const element[] = {&source[i]};
      reduce(&apart[i], &apart[i], element, 1, 1);
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

TYPED_TEST(HostReductionNanTest, MinAndMaxAreNanWhereAnyIs) {
  const TypeParam nan = std::numeric_limits<TypeParam>::quiet_NaN();
  ForEachInstructionSet([nan](const char* instruction_set) {
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      std::vector<TypeParam> own(100, 1);
      std::vector<TypeParam> first(100, 2);
      std::vector<TypeParam> second(100, 0);
      own[3] = nan;
      first[50] = nan;
      second[70] = nan;
      own[99] = nan;
      second[99] = nan;
      const void* const received[] = {first.data(), second.data()};
      FindReduction(TypeOf<TypeParam>(), op)(own.data(), own.data(), received,
                                             2, 100);
      for (std::size_t i = 0; i < 100; ++i) {
        EXPECT_EQ(std::isnan(own[i]), i == 3 || i == 50 || i == 70 || i == 99)
            << instruction_set << " " << Name(op) << " element " << i;
      }
    }
  });
}

template <typename T>
T ReduceTwo(ReduceOp op, T own, T source) {
  T result{};
  const void* const received[] = {&source};
  FindReduction(TypeOf<T>(), op)(&result, &own, received, 1, 1);
  return result;
}

TEST(HostReductionEdgeTest, IntegersWrapAround) {
  EXPECT_EQ(ReduceTwo<std::int8_t>(ReduceOp::kSum, 127, 1), -128);
  EXPECT_EQ(ReduceTwo<std::uint8_t>(ReduceOp::kProd, 200, 3), 600 % 256);
  EXPECT_EQ(ReduceTwo<std::int64_t>(
                ReduceOp::kProd, std::numeric_limits<std::int64_t>::max(), 2),
            -2);
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
      const void* const received[] = {nullptr, nullptr};
      FindReduction(type, op)(nullptr, nullptr, received, 1, 0);
      FindReduction(type, op)(nullptr, nullptr, received, 2, 0);
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
