#include "bench/verification.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "bench/block_hash.h"
#include "bench/input_data.h"
#include "bench/vector_clones.h"
#include "reduction/narrow_float.h"

namespace ringpipe {
namespace {

// Elements that are compared at a time: all arrays stay in the L1 or L2 cache.
constexpr std::size_t kStrip = 1024;

// Keeps digests below 768 KiB: 8 bytes a block, and 8 more for an owned one.
constexpr std::size_t kMaxBlocks = 48 * 1024;
constexpr std::size_t kMinBlockBytes = 16 * 1024;
constexpr std::size_t kMaxBlockBytes = 1024 * 1024;

// Of a floating-point type: how much of a value its rounding may change, at
// most, and of one near zero.
template <typename T>
constexpr double kUnitOf = 0;  // none
template <>
constexpr double kUnitOf<float> = 0x1p-24;
template <>
constexpr double kUnitOf<double> = 0x1p-53;
// What is computed as float32 is rounded twice.
template <>
constexpr double kUnitOf<Float16> = 0x1p-11 + 0x1p-22;
template <>
constexpr double kUnitOf<Bfloat16> = 0x1p-8 + 0x1p-22;
template <typename T>
constexpr bool kRounds = kUnitOf<T> != 0;
template <typename T>
constexpr double kLeastUnitOf = std::is_same_v<T, Float16> ? 0x1p-25 : 0;

// The reference of one strip of floating-point elements.
struct Reference {
  alignas(64) double value[kStrip];  // the sum's leading part, or the product
  alignas(64) double rest[kStrip];   // the sum's exact remainder
  alignas(64) double magnitude[kStrip];  // Σ|x_i|
};

template <typename T>
inline void AddLoop(const T* input, std::size_t count, Reference& reference) {
  for (std::size_t i = 0; i < count; ++i) {
    const double x = static_cast<double>(input[i]);
    const double a = reference.value[i];
    const double sum = a + x;
    if constexpr (std::is_same_v<T, double>) {
      // TwoSum (Knuth): sum + error == a + x exactly.
      const double b = sum - a;
      reference.rest[i] += (a - (sum - b)) + (x - b);
    }
    reference.value[i] = sum;
    reference.magnitude[i] += std::fabs(x);
  }
}

RINGPIPE_VECTOR_CLONES void Add(const float* input, std::size_t count,
                                Reference& reference) {
  AddLoop(input, count, reference);
}

RINGPIPE_VECTOR_CLONES void Add(const double* input, std::size_t count,
                                Reference& reference) {
  AddLoop(input, count, reference);
}

RINGPIPE_VECTOR_CLONES void Add(const Float16* input, std::size_t count,
                                Reference& reference) {
  AddLoop(input, count, reference);
}

RINGPIPE_VECTOR_CLONES void Add(const Bfloat16* input, std::size_t count,
                                Reference& reference) {
  AddLoop(input, count, reference);
}

template <typename T>
void Multiply(const T* input, std::size_t count, Reference& reference) {
  for (std::size_t i = 0; i < count; ++i) {
    reference.value[i] *= static_cast<double>(input[i]);
  }
}

// How far an element of type T may be from its reference; see the header.
template <typename T>
double Allowed(ReduceOp op, int size, double value, double magnitude) {
  constexpr double kUnit = kUnitOf<T>;
  constexpr bool kReferenceRounds = std::is_same_v<T, double>;
  const double p = size;
  if (op == ReduceOp::kProd) {
    const double gamma = (p - 1) * kUnit / (1 - (p - 1) * kUnit);
    return (kReferenceRounds ? 2 : 1) * gamma * std::fabs(value);
  }
  if (op == ReduceOp::kAverage) {
    const double bound =
        (1 + p * kUnit) * kUnit * magnitude + 2 * kLeastUnitOf<T>;
    return bound + (kReferenceRounds ? kUnit * std::fabs(value) : 0);
  }
  return (p - 1) * (kUnit * magnitude + kLeastUnitOf<T>);
}

template <typename T>
std::size_t CompareFloats(const VerifiedCall& call, const Reference& reference,
                          std::size_t count, const T* output) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    double value = reference.value[i];
    double rest = reference.rest[i];
    if (call.op == ReduceOp::kAverage) {
      value = (value + rest) / call.size;
      rest = 0;
    }
    const double off =
        std::fabs((static_cast<double>(output[i]) - value) - rest);
    // Written so that NaN is wrong.
    wrong +=
        !(off <= Allowed<T>(call.op, call.size, value, reference.magnitude[i]));
  }
  return wrong;
}

InputKey KeyOf(const VerifiedCall& call, int rank) {
  return {call.seed, static_cast<std::uint64_t>(rank), call.iteration};
}

// Sum, average and prod of floats over one strip.
template <typename T>
std::size_t CountWrongFloats(const VerifiedCall& call, std::uint64_t first,
                             std::size_t count, const T* output) {
  Reference reference;
  const bool prod = call.op == ReduceOp::kProd;
  std::fill_n(reference.value, count, prod ? 1.0 : 0.0);
  std::fill_n(reference.rest, count, 0.0);
  std::fill_n(reference.magnitude, count, 0.0);
  alignas(64) T input[kStrip];
  for (int rank = 0; rank < call.size; ++rank) {
    FillInput(call.type, call.op, KeyOf(call, rank), first, count, input);
    if (prod) {
      Multiply(input, count, reference);
    } else {
      Add(input, count, reference);
    }
  }
  return CompareFloats(call, reference, count, output);
}

// Exactly, with sums and products that wrap around.
template <typename T>
T ReduceExactly(ReduceOp op, T a, T b) {
  if (op == ReduceOp::kMin) {
    return std::min(a, b);
  }
  if (op == ReduceOp::kMax) {
    return std::max(a, b);
  }
  if constexpr (std::is_integral_v<T>) {
    const auto x = static_cast<std::uint64_t>(a);
    const auto y = static_cast<std::uint64_t>(b);
    return static_cast<T>(op == ReduceOp::kProd ? x * y : x + y);
  }
  return a;  // not reached: sums of floats aren't exact
}

// Everything else over one strip.
template <typename T>
std::size_t CountWrongExact(const VerifiedCall& call, std::uint64_t first,
                            std::size_t count, const T* output) {
  T expected[kStrip];
  T input[kStrip];
  FillInput(call.type, call.op, KeyOf(call, 0), first, count, expected);
  for (int rank = 1; rank < call.size; ++rank) {
    FillInput(call.type, call.op, KeyOf(call, rank), first, count, input);
    for (std::size_t i = 0; i < count; ++i) {
      expected[i] = ReduceExactly(call.op, expected[i], input[i]);
    }
  }
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if constexpr (std::is_integral_v<T>) {
      if (call.op == ReduceOp::kAverage) {
        using Wide = std::common_type_t<T, int>;
        expected[i] = static_cast<T>(static_cast<Wide>(expected[i]) /
                                     static_cast<Wide>(call.size));
      }
    }
    wrong += !(output[i] == expected[i]);
  }
  return wrong;
}

template <typename T>
std::size_t CountWrongTyped(const VerifiedCall& call, std::uint64_t first,
                            std::size_t count, const T* output) {
  const bool exact = std::is_integral_v<T> || call.op == ReduceOp::kMin ||
                     call.op == ReduceOp::kMax;
  std::size_t wrong = 0;
  for (std::size_t done = 0; done < count; done += kStrip) {
    const std::size_t now = std::min(kStrip, count - done);
    if constexpr (kRounds<T>) {
      if (!exact) {
        wrong += CountWrongFloats(call, first + done, now, output + done);
        continue;
      }
    }
    wrong += CountWrongExact(call, first + done, now, output + done);
  }
  return wrong;
}

// The output of a call, cut into blocks.
class Blocks {
 public:
  Blocks(const VerifiedCall& call, const void* output)
      : call_(call),
        output_(static_cast<const std::byte*>(output)),
        element_(SizeOf(call.type)),
        elements_(VerificationBlock(call)) {}

  std::size_t size() const { return (call_.count + elements_ - 1) / elements_; }
  std::size_t Owner(std::size_t b) const { return b % call_.size; }
  // Blocks of `rank`'s, and the place of block b among its owner's.
  std::size_t OwnedBy(std::size_t rank) const {
    return size() / call_.size + (rank < size() % call_.size ? 1 : 0);
  }
  std::size_t PlaceAtOwner(std::size_t b) const { return b / call_.size; }

  std::uint64_t Hash(std::size_t b) const {
    return BlockHash(Data(b), Count(b) * element_);
  }
  std::uint64_t Wrong(std::size_t b) const {
    return CountWrong(call_, b * elements_, Count(b), Data(b));
  }

 private:
  const std::byte* Data(std::size_t b) const {
    return output_ + b * elements_ * element_;
  }
  std::size_t Count(std::size_t b) const {
    return std::min(elements_, call_.count - b * elements_);
  }

  const VerifiedCall& call_;
  const std::byte* output_;
  std::size_t element_;
  std::size_t elements_;
};

void AppendWord(std::string& text, std::uint64_t word) {
  text.append(reinterpret_cast<const char*>(&word), sizeof word);
}

std::uint64_t WordAt(const std::string& text, std::size_t index) {
  std::uint64_t word;
  std::memcpy(&word, text.data() + index * sizeof word, sizeof word);
  return word;
}

}  // namespace

std::size_t CountWrong(const VerifiedCall& call, std::uint64_t first,
                       std::size_t count, const void* output) {
  const auto count_wrong = [&](const auto* typed) {
    return CountWrongTyped(call, first, count, typed);
  };
  switch (call.type) {
    case DataType::kFloat32:
      return count_wrong(static_cast<const float*>(output));
    case DataType::kFloat64:
      return count_wrong(static_cast<const double*>(output));
    case DataType::kInt32:
      return count_wrong(static_cast<const std::int32_t*>(output));
    case DataType::kInt64:
      return count_wrong(static_cast<const std::int64_t*>(output));
    case DataType::kInt8:
      return count_wrong(static_cast<const std::int8_t*>(output));
    case DataType::kUint8:
      return count_wrong(static_cast<const std::uint8_t*>(output));
    case DataType::kUint32:
      return count_wrong(static_cast<const std::uint32_t*>(output));
    case DataType::kUint64:
      return count_wrong(static_cast<const std::uint64_t*>(output));
    case DataType::kFloat16:
      return count_wrong(static_cast<const Float16*>(output));
    case DataType::kBfloat16:
      return count_wrong(static_cast<const Bfloat16*>(output));
  }
  return count;
}

namespace {

// The same of what is a rank's input, from element `first` on.
std::size_t CountOthers(const VerifiedCall& call, int rank, std::uint64_t first,
                        const std::byte* output) {
  const std::size_t element = SizeOf(call.type);
  alignas(64) std::array<std::byte, kStrip * sizeof(double)> expected;
  std::size_t wrong = 0;
  for (std::size_t done = 0; done < call.count; done += kStrip) {
    const std::size_t now = std::min(kStrip, call.count - done);
    FillInput(call.type, call.op, KeyOf(call, rank), first + done, now,
              expected.data());
    for (std::size_t i = 0; i < now; ++i) {
      wrong += std::memcmp(&expected[i * element],
                           output + (done + i) * element, element) != 0;
    }
  }
  return wrong;
}

}  // namespace

std::size_t CountWrong(const VerifiedCall& call, const void* output) {
  const CollectiveInfo& info = InfoOf(call.collective);
  const Holds holds = info.Of(call.rank == call.root).output;
  const std::uint64_t own_part = call.rank * call.count;
  if (holds == Holds::kNothing) {
    return 0;
  }
  if (info.reduces) {
    return CountWrong(call, holds == Holds::kOwnPart ? own_part : 0, call.count,
                      output);
  }
  const auto* const bytes = static_cast<const std::byte*>(output);
  const std::uint64_t first =
      call.collective == Collective::kAllToAll || holds == Holds::kOwnPart
          ? own_part
          : 0;
  if (!info.has_parts || holds == Holds::kOwnPart) {
    return CountOthers(call, call.root, first, bytes);
  }
  std::size_t wrong = 0;
  for (int rank = 0; rank < call.size; ++rank) {
    wrong += CountOthers(call, rank, first,
                         bytes + rank * call.count * SizeOf(call.type));
  }
  return wrong;
}

std::size_t VerificationBlock(const VerifiedCall& call) {
  const std::size_t element = SizeOf(call.type);
  // Four blocks a rank, so that the work is shared evenly; of middling size.
  const std::size_t even =
      call.count / (4 * static_cast<std::size_t>(call.size));
  const std::size_t wanted =
      std::clamp(even, kMinBlockBytes / element, kMaxBlockBytes / element);
  return std::max(wanted, call.count / kMaxBlocks + 1);
}

std::string VerificationDigest(const VerifiedCall& call, const void* output) {
  const Blocks blocks(call, output);
  std::string digest;
  std::string wrong;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    AppendWord(digest, blocks.Hash(b));
    if (blocks.Owner(b) == static_cast<std::size_t>(call.rank)) {
      AppendWord(wrong, blocks.Wrong(b));
    }
  }
  return digest + wrong;
}

Result<std::size_t> CountWrong(const VerifiedCall& call, const void* output,
                               const std::vector<std::string>& digests) {
  const Blocks blocks(call, output);
  if (digests.size() != static_cast<std::size_t>(call.size)) {
    return Status(StatusCode::kMismatch,
                  std::to_string(digests.size()) + " digests for " +
                      std::to_string(call.size) + " ranks");
  }
  for (std::size_t rank = 0; rank < digests.size(); ++rank) {
    const std::size_t words = blocks.size() + blocks.OwnedBy(rank);
    if (digests[rank].size() != words * sizeof(std::uint64_t)) {
      return Status(StatusCode::kMismatch,
                    "rank " + std::to_string(rank) +
                        " verified a different call than this rank");
    }
  }
  std::size_t wrong = 0;
  const std::string& mine = digests[call.rank];
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    const std::string& owners = digests[blocks.Owner(b)];
    wrong += WordAt(mine, b) == WordAt(owners, b)
                 ? WordAt(owners, blocks.size() + blocks.PlaceAtOwner(b))
                 : blocks.Wrong(b);
  }
  return wrong;
}

}  // namespace ringpipe
