#include "bench/verification.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "bench/block_hash.h"
#include "bench/input_data.h"
#include "reduction/narrow_float.h"

namespace ringpipe {
namespace {

using Bytes = std::vector<std::byte>;

VerifiedCall Call(DataType type, ReduceOp op, std::size_t count, int size) {
  VerifiedCall call;
  call.type = type;
  call.op = op;
  call.count = count;
  call.size = size;
  call.seed = 7;
  call.iteration = 3;
  return call;
}

template <typename T>
T Reduce(ReduceOp op, T a, T b) {
  if (op == ReduceOp::kMin) return std::min(a, b);
  if (op == ReduceOp::kMax) return std::max(a, b);
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    const auto x = static_cast<unsigned long long>(static_cast<U>(a));
    const auto y = static_cast<unsigned long long>(static_cast<U>(b));
    return static_cast<T>(op == ReduceOp::kProd ? x * y : x + y);
  } else {
    return static_cast<T>(op == ReduceOp::kProd ? a * b : a + b);
  }
}

// An allreduce in the plainest way: rank by rank, in the data's own type, the
// ranks starting at `start` as they do for a ring's chunk.
template <typename T>
Bytes AllReduceTyped(const VerifiedCall& call, int start) {
  std::vector<T> result(call.count);
  std::vector<T> input(call.count);
  for (int step = 0; step < call.size; ++step) {
    const int rank = (start + step) % call.size;
    FillInput(call.type, call.op,
              {call.seed, static_cast<std::uint64_t>(rank), call.iteration}, 0,
              call.count, input.data());
    for (std::size_t i = 0; i < call.count; ++i) {
      result[i] = step == 0 ? input[i] : Reduce(call.op, result[i], input[i]);
    }
  }
  if (call.op == ReduceOp::kAverage) {
    for (T& value : result) {
      value = static_cast<T>(value / static_cast<T>(call.size));
    }
  }
  Bytes bytes(call.count * sizeof(T));
  if (!bytes.empty()) {
    std::memcpy(bytes.data(), result.data(), bytes.size());
  }
  return bytes;
}

Bytes AllReduce(const VerifiedCall& call, int start = 0) {
  switch (call.type) {
    case DataType::kFloat32:
      return AllReduceTyped<float>(call, start);
    case DataType::kFloat64:
      return AllReduceTyped<double>(call, start);
    case DataType::kInt32:
      return AllReduceTyped<std::int32_t>(call, start);
    case DataType::kInt64:
      return AllReduceTyped<std::int64_t>(call, start);
    case DataType::kInt8:
      return AllReduceTyped<std::int8_t>(call, start);
    case DataType::kUint8:
      return AllReduceTyped<std::uint8_t>(call, start);
    case DataType::kUint32:
      return AllReduceTyped<std::uint32_t>(call, start);
    case DataType::kUint64:
      return AllReduceTyped<std::uint64_t>(call, start);
    case DataType::kFloat16:
      return AllReduceTyped<Float16>(call, start);
    case DataType::kBfloat16:
      return AllReduceTyped<Bfloat16>(call, start);
  }
  return {};
}

// What the ranks find together, each given its own output.
std::vector<std::size_t> Verify(VerifiedCall call,
                                const std::vector<Bytes>& outputs) {
  std::vector<std::string> digests;
  for (call.rank = 0; call.rank < call.size; ++call.rank) {
    digests.push_back(VerificationDigest(call, outputs[call.rank].data()));
  }
  std::vector<std::size_t> wrong;
  for (call.rank = 0; call.rank < call.size; ++call.rank) {
    const auto counted = CountWrong(call, outputs[call.rank].data(), digests);
    EXPECT_TRUE(counted.ok()) << counted.status().ToString();
    wrong.push_back(counted.ok() ? *&counted.value() : ~std::size_t{0});
  }
  return wrong;
}

TEST(InputData, DependsOnSeedRankIterationAndIndexAlone) {
  constexpr std::size_t kCount = 1000;
  const auto fill = [](InputKey key, std::uint64_t first) {
    std::vector<std::int64_t> data(kCount);
    FillInput(DataType::kInt64, ReduceOp::kSum, key, first, kCount,
              data.data());
    return data;
  };
  const auto base = fill({1, 2, 3}, 0);
  EXPECT_EQ(base, fill({1, 2, 3}, 0));
  std::set<std::int64_t> all(base.begin(), base.end());
  for (const auto& other :
       {fill({0, 2, 3}, 0), fill({1, 0, 3}, 0), fill({1, 2, 0}, 0),
        fill({1, 2, 3}, kCount), fill({1, 2, 3}, std::uint64_t{1} << 32)}) {
    all.insert(other.begin(), other.end());
  }
  EXPECT_EQ(all.size(), 6 * kCount);
  // In pieces, also across an index of 2^32.
  const std::uint64_t first = (std::uint64_t{1} << 32) - 500;
  const auto whole = fill({1, 2, 3}, first);
  std::vector<std::int64_t> rest(kCount - 600);
  FillInput(DataType::kInt64, ReduceOp::kSum, {1, 2, 3}, first + 600,
            rest.size(), rest.data());
  EXPECT_TRUE(std::equal(rest.begin(), rest.end(), whole.begin() + 600));
}

TEST(InputData, FloatsFillTheirRangeWithFullMantissas) {
  constexpr std::size_t kCount = 1 << 20;
  std::vector<float> data(kCount);
  FillInput(DataType::kFloat32, ReduceOp::kSum, {}, 0, kCount, data.data());
  const auto [low, high] = std::minmax_element(data.begin(), data.end());
  EXPECT_GE(*low, -1.0f);
  EXPECT_LT(*low, -0.9999f);
  EXPECT_LT(*high, 1.0f);
  EXPECT_GT(*high, 0.9999f);
  double sum = 0;
  int odd = 0;
  for (const float value : data) {
    sum += value;
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    odd += bits & 1;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.003);
  // A little below half: the smallest values have fewer bits, and ties round
  // to even.
  EXPECT_NEAR(static_cast<double>(odd) / kCount, 0.5, 0.02);
  FillInput(DataType::kFloat32, ReduceOp::kProd, {}, 0, kCount, data.data());
  EXPECT_GE(*std::min_element(data.begin(), data.end()), 1 - 0x1p-7f);
  EXPECT_LE(*std::max_element(data.begin(), data.end()), 1 + 0x1p-7f);
}

TEST(BlockHash, AnyFlippedBitAndAnyLengthChangesIt) {
  for (const std::size_t bytes : {1, 7, 8, 63, 64, 65, 200}) {
    Bytes data(bytes, std::byte{0x5a});
    std::set<std::uint64_t> hashes = {BlockHash(data.data(), bytes)};
    for (std::size_t bit = 0; bit < 8 * bytes; ++bit) {
      data[bit / 8] ^= std::byte{1} << (bit % 8);
      hashes.insert(BlockHash(data.data(), bytes));
      data[bit / 8] ^= std::byte{1} << (bit % 8);
    }
    EXPECT_EQ(hashes.size(), 8 * bytes + 1);
  }
  const Bytes zeros(256);
  std::set<std::uint64_t> hashes;
  for (std::size_t bytes = 0; bytes <= zeros.size(); ++bytes) {
    hashes.insert(BlockHash(zeros.data(), bytes));
  }
  EXPECT_EQ(hashes.size(), zeros.size() + 1);
}

TEST(BlockHash, OrderOfWordsMatters) {
  std::uint64_t words[32];
  for (int i = 0; i < 32; ++i) words[i] = i;
  const std::uint64_t hash = BlockHash(words, sizeof words);
  std::swap(words[0], words[8]);  // the same lane
  EXPECT_NE(BlockHash(words, sizeof words), hash);
  std::swap(words[0], words[8]);
  std::swap(words[0], words[1]);  // two lanes
  EXPECT_NE(BlockHash(words, sizeof words), hash);
}

TEST(Verification, EveryTypeAndOpIsRightInAnyOrderOfRanks) {
  for (const DataType type : kDataTypes) {
    for (const ReduceOp op : kReduceOps) {
      for (const int size : {1, 2, 3, 8}) {
        VerifiedCall call = Call(type, op, 5000, size);
        for (int start = 0; start < size; ++start) {
          const Bytes output = AllReduce(call, start);
          EXPECT_EQ(CountWrong(call, 0, call.count, output.data()), 0u)
              << Name(type) << " " << Name(op) << " " << size;
        }
      }
    }
  }
}

TEST(Verification, NeighboursOfTheRightIntegerAreWrong) {
  const VerifiedCall call = Call(DataType::kInt8, ReduceOp::kAverage, 4096, 3);
  Bytes output = AllReduce(call);
  for (std::byte& byte : output) {
    byte = static_cast<std::byte>(static_cast<int>(byte) + 1);
  }
  EXPECT_EQ(CountWrong(call, 0, call.count, output.data()), call.count);
}

// The bound is sharp enough to find a sum that lacks one rank's element, or
// has it from another iteration, or is a few units in the last place off.
TEST(Verification, FloatsThatAreBarelyOffAreWrong) {
  for (const auto& [type, unit] : {std::pair(DataType::kFloat32, 0x1p-24),
                                   std::pair(DataType::kFloat64, 0x1p-53),
                                   std::pair(DataType::kFloat16, 0x1p-11),
                                   std::pair(DataType::kBfloat16, 0x1p-8)}) {
    for (const ReduceOp op :
         {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kProd}) {
      const VerifiedCall call = Call(type, op, 4096, 4);
      Bytes output = AllReduce(call);
      // 16 u is more than any of the bounds for four inputs of at most 1.
      const double shift = 16 * unit;
      for (std::size_t i = 0; i < call.count; ++i) {
        if (type == DataType::kFloat32) {
          reinterpret_cast<float*>(output.data())[i] += shift;
        } else if (type == DataType::kFloat64) {
          reinterpret_cast<double*>(output.data())[i] += shift;
        } else if (type == DataType::kFloat16) {
          auto& value = reinterpret_cast<Float16*>(output.data())[i];
          value = Float16(static_cast<float>(value + shift));
        } else {
          auto& value = reinterpret_cast<Bfloat16*>(output.data())[i];
          value = Bfloat16(static_cast<float>(value + shift));
        }
      }
      EXPECT_EQ(CountWrong(call, 0, call.count, output.data()), call.count)
          << Name(type) << " " << Name(op);
    }
  }
}

TEST(Verification, PoisonIsWrong) {
  for (const DataType type : kDataTypes) {
    for (const ReduceOp op : kReduceOps) {
      const VerifiedCall call = Call(type, op, 4096, 3);
      const Bytes poison(call.count * SizeOf(type), std::byte{0xff});
      // Some integers happen to be 0xff: one in three at most (max of uint8
      // is that in 3 of 256; an average of -1, 0, 1 never).
      EXPECT_GT(CountWrong(call, 0, call.count, poison.data()), call.count / 2)
          << Name(type) << " " << Name(op);
    }
  }
}

TEST(Verification, AnElementOfAnotherIterationIsWrong) {
  VerifiedCall call = Call(DataType::kFloat32, ReduceOp::kSum, 4096, 3);
  const Bytes output = AllReduce(call);
  call.iteration += 1;
  EXPECT_GT(CountWrong(call, 0, call.count, output.data()),
            call.count * 99 / 100);
}

// Each rank in turn, in a block of its own, in another's, and in the last
// one, which is short.
TEST(Verification, OneFlippedBitOnAnyRankIsFoundOnThatRankAlone) {
  const VerifiedCall call = Call(DataType::kInt32, ReduceOp::kSum, 100001, 3);
  const Bytes right = AllReduce(call);
  const std::size_t block = VerificationBlock(call);
  ASSERT_GT(call.count / block, 3u);
  for (int rank = 0; rank < call.size; ++rank) {
    for (const std::size_t element :
         {std::size_t{0}, block, 2 * block, call.count - 1}) {
      std::vector<Bytes> outputs(call.size, right);
      outputs[rank][element * 4 + 2] ^= std::byte{0x10};
      std::vector<std::size_t> expected(call.size, 0);
      expected[rank] = 1;
      EXPECT_EQ(Verify(call, outputs), expected) << rank << " " << element;
    }
  }
}

TEST(Verification, TheSameWrongElementOnEveryRankCountsOnEach) {
  const VerifiedCall call = Call(DataType::kFloat64, ReduceOp::kSum, 50000, 3);
  Bytes output = AllReduce(call);
  output[8 * 777 + 6] ^= std::byte{0x01};
  output[8 * 40000 + 6] ^= std::byte{0x01};
  const std::vector<Bytes> outputs(call.size, output);
  EXPECT_EQ(Verify(call, outputs), (std::vector<std::size_t>{2, 2, 2}));
}

TEST(Verification, SmallCountsAndNoneAtAllAreVerified) {
  for (const std::size_t count : {0, 1, 2, 7, 8, 9}) {
    const VerifiedCall call =
        Call(DataType::kFloat32, ReduceOp::kSum, count, 8);
    std::vector<Bytes> outputs(call.size, AllReduce(call));
    EXPECT_EQ(Verify(call, outputs), std::vector<std::size_t>(8, 0));
    if (count > 0) {
      outputs[5][0] = outputs[5][1] = outputs[5][2] = outputs[5][3] =
          std::byte{0xff};
      EXPECT_EQ(Verify(call, outputs)[5], 1u);
    }
  }
}

TEST(Verification, ADigestOfAnotherSizeIsAnErrorAndNotRead) {
  const VerifiedCall call = Call(DataType::kInt8, ReduceOp::kMax, 100, 2);
  const Bytes output = AllReduce(call);
  const std::string digest = VerificationDigest(call, output.data());
  EXPECT_FALSE(CountWrong(call, output.data(), {digest, ""}).ok());
  EXPECT_FALSE(CountWrong(call, output.data(), {digest}).ok());
}

TEST(Verification, DigestsFitIntoAnExchangeAtAnySize) {
  for (const int size : {1, 2, 1024}) {
    const VerifiedCall call =
        Call(DataType::kUint8, ReduceOp::kSum, std::size_t{1} << 45, size);
    const std::size_t block = VerificationBlock(call);
    const std::size_t blocks = (call.count + block - 1) / block;
    EXPECT_LE(8 * (blocks + blocks / size + 1), 1u << 20);
  }
}

}  // namespace
}  // namespace ringpipe
