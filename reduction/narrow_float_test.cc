// The types of 16 bits: conversions of all values, and that the kernels do what
// the scalar functions do, to the bit.
#include "reduction/narrow_float.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "reduction/host_reduction.h"
#include "reduction/instruction_sets.h"

namespace ringpipe {
namespace {

constexpr int kAll = 1 << 16;

// What a format of 1 + 8 or 5 + the rest bits says, computed without it.
struct Format {
  DataType type;
  int fraction_bits;
  int bias;
  float (*widen)(std::uint16_t);
  std::uint16_t (*narrow)(float);

  int special_exponent() const { return 2 * bias + 1; }

  double Value(int bits) const {
    const int fraction = bits & ((1 << fraction_bits) - 1);
    const int exponent = bits >> fraction_bits & special_exponent();
    double value =
        exponent == special_exponent()
            ? (fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                             : std::numeric_limits<double>::infinity())
        : exponent == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                        : std::ldexp(fraction + (1 << fraction_bits),
                                     exponent - bias - fraction_bits);
    return (bits & 0x8000) != 0 ? -value : value;
  }
};

constexpr Format kFormats[] = {
    {DataType::kFloat16, 10, 15, &WidenFloat16, &NarrowToFloat16},
    {DataType::kBfloat16, 7, 127, &WidenBfloat16, &NarrowToBfloat16}};

bool SameOrBothNan(std::uint16_t a, std::uint16_t b, const Format& format) {
  return a == b || (std::isnan(format.Value(a)) && std::isnan(format.Value(b)));
}

TEST(NarrowFloatTest, EveryValueIsWidenedToWhatItIs) {
  for (const Format& format : kFormats) {
    for (int bits = 0; bits < kAll; ++bits) {
      const float wide = format.widen(static_cast<std::uint16_t>(bits));
      const double expected = format.Value(bits);
      ASSERT_TRUE(std::isnan(expected)
                      ? std::isnan(wide)
                      : static_cast<double>(wide) == expected &&
                            std::signbit(wide) == std::signbit(expected))
          << Name(format.type) << " " << bits;
    }
  }
}

TEST(NarrowFloatTest, EveryValueComesBackTheSame) {
  for (const Format& format : kFormats) {
    for (int bits = 0; bits < kAll; ++bits) {
      const auto value = static_cast<std::uint16_t>(bits);
      ASSERT_TRUE(
          SameOrBothNan(format.narrow(format.widen(value)), value, format))
          << Name(format.type) << " " << bits;
    }
  }
}

// Halfway between two neighbours, and just beside it.
TEST(NarrowFloatTest, WhatLiesBetweenIsRoundedToTheNearestAndTiesToEven) {
  for (const Format& format : kFormats) {
    const int infinity = format.special_exponent() << format.fraction_bits;
    for (int bits = 0; bits < infinity; ++bits) {
      // The neighbour of the largest is where the next would be.
      const double low = format.Value(bits);
      const double high = bits + 1 < infinity
                              ? format.Value(bits + 1)
                              : 2 * low - format.Value(bits - 1);
      const auto middle = static_cast<float>((low + high) / 2);
      ASSERT_EQ(static_cast<double>(middle), (low + high) / 2);
      const int even = bits % 2 == 0 ? bits : bits + 1;
      for (const float sign : {1.0F, -1.0F}) {
        const int sign_bit = sign < 0 ? 0x8000 : 0;
        const auto narrow = [&](float value) {
          return static_cast<int>(format.narrow(sign * value));
        };
        ASSERT_EQ(narrow(middle), even | sign_bit) << bits;
        ASSERT_EQ(narrow(std::nextafter(middle, 0.0F)), bits | sign_bit);
        ASSERT_EQ(narrow(std::nextafter(middle, INFINITY)),
                  (bits + 1) | sign_bit);
      }
    }
    EXPECT_EQ(format.narrow(std::numeric_limits<float>::max()), infinity);
    EXPECT_EQ(format.narrow(INFINITY), infinity);
    EXPECT_TRUE(std::isnan(format.Value(format.narrow(NAN))));
  }
}

std::uint16_t Apply(const Format& format, ReduceOp op, std::uint16_t own,
                    std::uint16_t received) {
  const float a = format.widen(own);
  const float b = format.widen(received);
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return format.narrow(a + b);
    case ReduceOp::kProd:
      return format.narrow(a * b);
    case ReduceOp::kMin:
      return std::isnan(a) || std::isnan(b) ? format.narrow(NAN)
             : b < a                        ? received
                                            : own;
    case ReduceOp::kMax:
      return std::isnan(a) || std::isnan(b) ? format.narrow(NAN)
             : a < b                        ? received
                                            : own;
  }
  return 0;
}

std::vector<std::uint16_t> AllValues(int times) {
  std::vector<std::uint16_t> values(kAll);
  for (int bits = 0; bits < kAll; ++bits) {
    values[bits] = static_cast<std::uint16_t>(bits * times + 12'345);
  }
  return values;
}

// Every value, with another one, on every instruction set.
TEST(NarrowFloatTest, ReductionsRoundAfterEachStep) {
  const auto own = AllValues(1);
  const std::vector<std::uint16_t> sources[] = {AllValues(40'503),
                                                AllValues(1)};
  ForEachInstructionSet([&](const char* instruction_set) {
    for (const Format& format : kFormats) {
      for (const ReduceOp op : kReduceOps) {
        auto together = own;
        const void* const received[] = {sources[0].data(), sources[1].data()};
        FindReduction(format.type, op)(together.data(), own.data(), received, 2,
                                       together.size());
        for (int i = 0; i < kAll; ++i) {
          const std::uint16_t expected =
              Apply(format, op, Apply(format, op, own[i], sources[0][i]),
                    sources[1][i]);
          ASSERT_TRUE(SameOrBothNan(together[i], expected, format))
              << instruction_set << " " << Name(format.type) << " " << Name(op)
              << ": " << own[i] << ", " << sources[0][i] << ", "
              << sources[1][i] << " gave " << together[i] << ", not "
              << expected;
        }
      }
    }
  });
}

// At any offset, of any length.
TEST(NarrowFloatTest, ReductionsStayWithinTheirElements) {
  const auto own = AllValues(3);
  const auto source = AllValues(7);
  for (const Format& format : kFormats) {
    for (std::size_t offset = 0; offset < 5; ++offset) {
      for (std::size_t count = 0; count < 150; ++count) {
        std::vector<std::uint16_t> target(200, 0x1234);
        const void* const received[] = {source.data() + 2 * offset};
        FindReduction(format.type, ReduceOp::kSum)(
            target.data() + offset, own.data() + offset, received, 1, count);
        for (std::size_t i = 0; i < target.size(); ++i) {
          const bool is_in = i >= offset && i < offset + count;
          ASSERT_TRUE(SameOrBothNan(
              target[i],
              is_in ? Apply(format, ReduceOp::kSum, own[i], source[i + offset])
                    : 0x1234,
              format))
              << offset << " " << count << " " << i;
        }
      }
    }
  }
}

// Of values of one sign, one rank's after the other's: the root mean square of
// what the sum is off, as a part of it.
template <typename T>
double ErrorOfSums(int ranks, bool rounds_once) {
  constexpr int kSums = 20'000;
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  double squares = 0;
  for (int i = 0; i < kSums; ++i) {
    double exact = 0;
    T sum;
    for (int rank = 0; rank < ranks; ++rank) {
      const T value(std::fabs(normal(random)));
      exact += static_cast<double>(value);
      sum = rank == 0 ? value : T(float{sum} + float{value});
    }
    const float got = rounds_once ? T(static_cast<float>(exact)) : sum;
    squares += std::pow(static_cast<double>(got) / exact - 1, 2);
  }
  return std::sqrt(squares / kSums);
}

template <typename T>
void ExpectErrors(const char* name, double of_8, double of_64) {
  for (const auto& [ranks, stated] :
       {std::pair(8, of_8), std::pair(64, of_64)}) {
    const double error = ErrorOfSums<T>(ranks, false);
    std::printf("| %s, %d ranks | %.2f %% | %.2f %% |\n", name, ranks,
                100 * error, 100 * ErrorOfSums<T>(ranks, true));
    EXPECT_NEAR(100 * error, stated, 0.006) << name << ", " << ranks;
  }
}

TEST(NarrowFloatTest, SumsAreOffByWhatSemanticsSays) {
  ExpectErrors<Float16>("float16", 0.04, 0.10);
  ExpectErrors<Bfloat16>("bfloat16", 0.31, 0.78);
}

TEST(NarrowFloatTest, AnAverageIsDividedAsFloat32AndRounded) {
  ForEachInstructionSet([](const char* instruction_set) {
    for (const Format& format : kFormats) {
      for (const int size : {2, 3, 7, 4'097}) {
        const auto before = AllValues(1);
        auto values = before;
        FindFinish(format.type, ReduceOp::kAverage)(values.data(),
                                                    values.size() - 5, size);
        for (int i = 0; i < kAll; ++i) {
          const std::uint16_t expected =
              i < kAll - 5 ? format.narrow(format.widen(before[i]) /
                                           static_cast<float>(size))
                           : before[i];
          ASSERT_TRUE(SameOrBothNan(values[i], expected, format))
              << instruction_set << " " << Name(format.type) << " " << before[i]
              << " / " << size;
        }
      }
    }
  });
}

}  // namespace
}  // namespace ringpipe
