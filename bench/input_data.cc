#include "bench/input_data.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "bench/vector_clones.h"
#include "reduction/narrow_float.h"

namespace ringpipe {
namespace {

// Two words that make the stream of one (key, stretch of 2^32 elements) unlike
// that of any other.
struct StreamKey {
  std::uint32_t in;
  std::uint32_t between;
};

// The finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
constexpr std::uint64_t Mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

StreamKey MakeStreamKey(const InputKey& key, std::uint64_t stretch) {
  const std::uint64_t mixed =
      Mix64(Mix64(Mix64(Mix64(key.seed) ^ key.rank) ^ key.iteration) ^ stretch);
  return {static_cast<std::uint32_t>(mixed),
          static_cast<std::uint32_t>(mixed >> 32)};
}

// 32 bits, so that a vector register holds many. The key enters twice:
// otherwise two streams would be permutations of one another.
inline std::uint32_t Hash(std::uint32_t index, StreamKey key) {
  std::uint32_t x = index ^ key.in;
  x = (x ^ (x >> 16)) * 0x21f0aaad;
  x += key.between;
  x = (x ^ (x >> 15)) * 0x735a2d97;
  return x ^ (x >> 15);
}

inline std::uint64_t Hash64(std::uint32_t index, StreamKey key) {
  const StreamKey other = {key.between, key.in};
  return (static_cast<std::uint64_t>(Hash(index, key)) << 32) |
         Hash(index, other);
}

// [-1, 1): the largest words are taken down to the largest integer that the
// conversion does not round up to 1.
inline float UnitFloat(std::uint32_t word) {
  const auto value =
      std::min(static_cast<std::int32_t>(word), std::int32_t{0x7fffff80});
  return static_cast<float>(value) * 0x1p-31f;
}

inline double UnitDouble(std::uint64_t word) {
  const auto value = std::min(static_cast<std::int64_t>(word),
                              std::int64_t{0x7ffffffffffffc00});
  return static_cast<double>(value) * 0x1p-63;
}

template <typename T>
constexpr bool kIsNarrow =
    std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16>;

template <typename T, bool kProd>
inline T Element(std::uint32_t index, StreamKey key) {
  if constexpr (std::is_same_v<T, float>) {
    const float unit = UnitFloat(Hash(index, key));
    return kProd ? 1.0f + unit * 0x1p-7f : unit;
  } else if constexpr (std::is_same_v<T, double>) {
    const double unit = UnitDouble(Hash64(index, key));
    return kProd ? 1.0 + unit * 0x1p-7 : unit;
  } else if constexpr (kIsNarrow<T>) {
    return T(Element<float, kProd>(index, key));
  } else if constexpr (kProd) {
    // -7, -5, ..., 7; for unsigned types modulo their range.
    return static_cast<T>(static_cast<int>(Hash(index, key) & 7) * 2 - 7);
  } else if constexpr (sizeof(T) == 8) {
    return static_cast<T>(Hash64(index, key));
  } else {
    return static_cast<T>(Hash(index, key));
  }
}

template <typename T, bool kProd>
inline void FillLoop(StreamKey key, std::uint32_t first, std::size_t count,
                     T* out) {
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = Element<T, kProd>(first + static_cast<std::uint32_t>(i), key);
  }
}

// Clones can't be templates, so each loop has a name.
#define RINGPIPE_DEFINE_FILL(NAME, T, PROD)                            \
  RINGPIPE_VECTOR_CLONES void NAME(StreamKey key, std::uint32_t first, \
                                   std::size_t count, T* out) {        \
    FillLoop<T, PROD>(key, first, count, out);                         \
  }
RINGPIPE_DEFINE_FILL(FillAny, float, false)
RINGPIPE_DEFINE_FILL(FillProd, float, true)
RINGPIPE_DEFINE_FILL(FillAny, double, false)
RINGPIPE_DEFINE_FILL(FillProd, double, true)
RINGPIPE_DEFINE_FILL(FillAny, std::int32_t, false)
RINGPIPE_DEFINE_FILL(FillProd, std::int32_t, true)
RINGPIPE_DEFINE_FILL(FillAny, std::int64_t, false)
RINGPIPE_DEFINE_FILL(FillProd, std::int64_t, true)
RINGPIPE_DEFINE_FILL(FillAny, std::int8_t, false)
RINGPIPE_DEFINE_FILL(FillProd, std::int8_t, true)
RINGPIPE_DEFINE_FILL(FillAny, std::uint8_t, false)
RINGPIPE_DEFINE_FILL(FillProd, std::uint8_t, true)
RINGPIPE_DEFINE_FILL(FillAny, std::uint32_t, false)
RINGPIPE_DEFINE_FILL(FillProd, std::uint32_t, true)
RINGPIPE_DEFINE_FILL(FillAny, std::uint64_t, false)
RINGPIPE_DEFINE_FILL(FillProd, std::uint64_t, true)
RINGPIPE_DEFINE_FILL(FillAny, Float16, false)
RINGPIPE_DEFINE_FILL(FillProd, Float16, true)
RINGPIPE_DEFINE_FILL(FillAny, Bfloat16, false)
RINGPIPE_DEFINE_FILL(FillProd, Bfloat16, true)
#undef RINGPIPE_DEFINE_FILL

template <typename T>
void Fill(ReduceOp op, const InputKey& key, std::uint64_t first,
          std::size_t count, T* out) {
  constexpr std::uint64_t kStretch = std::uint64_t{1} << 32;
  while (count > 0) {
    const std::size_t now =
        std::min<std::uint64_t>(count, kStretch - first % kStretch);
    const StreamKey stream = MakeStreamKey(key, first / kStretch);
    const auto index = static_cast<std::uint32_t>(first);
    if (op == ReduceOp::kProd) {
      FillProd(stream, index, now, out);
    } else {
      FillAny(stream, index, now, out);
    }
    first += now;
    count -= now;
    out += now;
  }
}

}  // namespace

void FillInput(DataType type, ReduceOp op, const InputKey& key,
               std::uint64_t first, std::size_t count, void* out) {
  switch (type) {
    case DataType::kFloat32:
      return Fill(op, key, first, count, static_cast<float*>(out));
    case DataType::kFloat64:
      return Fill(op, key, first, count, static_cast<double*>(out));
    case DataType::kInt32:
      return Fill(op, key, first, count, static_cast<std::int32_t*>(out));
    case DataType::kInt64:
      return Fill(op, key, first, count, static_cast<std::int64_t*>(out));
    case DataType::kInt8:
      return Fill(op, key, first, count, static_cast<std::int8_t*>(out));
    case DataType::kUint8:
      return Fill(op, key, first, count, static_cast<std::uint8_t*>(out));
    case DataType::kUint32:
      return Fill(op, key, first, count, static_cast<std::uint32_t*>(out));
    case DataType::kUint64:
      return Fill(op, key, first, count, static_cast<std::uint64_t*>(out));
    case DataType::kFloat16:
      return Fill(op, key, first, count, static_cast<Float16*>(out));
    case DataType::kBfloat16:
      return Fill(op, key, first, count, static_cast<Bfloat16*>(out));
  }
}

}  // namespace ringpipe
