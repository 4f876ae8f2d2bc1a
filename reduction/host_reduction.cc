// The kernels are compiled once for each instruction set below, by including
// this file again and again (foreach_target.h); the best that the CPU has is
// chosen at run time.
#include "reduction/host_reduction.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

// What is in between makes no difference here but takes time to compile.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduction/host_reduction.cc"
#include "hwy/foreach_target.h"  // before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ringpipe {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The operations, on vectors. Integers wrap around.

struct SumOp {
  template <class D, class V>
  static HWY_INLINE V Apply(D /*d*/, V a, V b) {
    return hn::Add(a, b);
  }
};

struct ProdOp {
  template <class D, class V>
  static HWY_INLINE V Apply(D d, V a, V b) {
    using T = hn::TFromD<D>;
    if constexpr (sizeof(T) > 1) {
      return hn::Mul(a, b);
    } else if constexpr (hn::MaxLanes(D()) == 1) {
      return hn::Set(d, static_cast<T>(hn::GetLane(a) * hn::GetLane(b)));
    } else {
      // No CPU multiplies bytes: the even and the odd ones as 16-bit numbers,
      // whose low byte does not depend on the high bytes of the factors.
      const hn::RepartitionToWide<hn::RebindToUnsigned<D>> wide;
      const auto a16 = hn::BitCast(wide, a);
      const auto b16 = hn::BitCast(wide, b);
      const auto even = hn::And(hn::Mul(a16, b16), hn::Set(wide, 0x00ff));
      const auto odd = hn::ShiftLeft<8>(
          hn::Mul(hn::ShiftRight<8>(a16), hn::ShiftRight<8>(b16)));
      return hn::BitCast(d, hn::Or(even, odd));
    }
  }
};

// The CPUs' own instructions disagree about NaN, hence comparisons: b where it
// is smaller (larger) or NaN, else a; a comparison with NaN is false.

struct MinOp {
  template <class D, class V>
  static HWY_INLINE V Apply(D /*d*/, V a, V b) {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
      return hn::IfThenElse(hn::Or(hn::Lt(b, a), hn::IsNaN(b)), b, a);
    } else {
      return hn::Min(a, b);
    }
  }
};

struct MaxOp {
  template <class D, class V>
  static HWY_INLINE V Apply(D /*d*/, V a, V b) {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
      return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(b)), b, a);
    } else {
      return hn::Max(a, b);
    }
  }
};

// The types of 16 bits, as the scalar functions of narrow_float.h: what is
// taken out of half a vector of them is a vector of float32. `D` is of the
// latter.

struct Float16Format {
  template <class D, class V>
  static HWY_INLINE hn::Vec<D> Widen(D d, V narrow) {
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::PromoteTo(du, narrow);
    const auto magnitude =
        hn::ShiftLeft<13>(hn::And(bits, hn::Set(du, 0x7fffU)));
    const auto scaled = hn::BitCast(
        du, hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p112F)));
    const auto special =
        hn::IfThenElseZero(hn::Gt(magnitude, hn::Set(du, (31U << 23) - 1)),
                           hn::Set(du, 255U << 23));
    const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000U)));
    return hn::BitCast(d, hn::Or(hn::Or(scaled, special), sign));
  }
  template <class D16, class D>
  static HWY_INLINE hn::Vec<D16> Narrow(D16 d16, D d, hn::Vec<D> value) {
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::BitCast(du, value);
    const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffffffU));
    const auto denormal = hn::Sub(
        hn::BitCast(du, hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5F))),
        hn::Set(du, 126U << 23));
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1U));
    const auto normal = hn::ShiftRight<13>(
        hn::Add(hn::Sub(magnitude, hn::Set(du, (112U << 23) - 0xfff)), odd));
    const auto special =
        hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 255U << 23)),
                       hn::Set(du, 0x7e00U), hn::Set(du, 0x7c00U));
    const auto narrow = hn::IfThenElse(
        hn::Gt(magnitude, hn::Set(du, (143U << 23) - 1)), special,
        hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 113U << 23)), denormal,
                       normal));
    const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000U));
    return hn::TruncateTo(d16, hn::Or(narrow, sign));
  }
};

struct Bfloat16Format {
  template <class D, class V>
  static HWY_INLINE hn::Vec<D> Widen(D d, V narrow) {
    const hn::RebindToUnsigned<D> du;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, narrow)));
  }
  template <class D16, class D>
  static HWY_INLINE hn::Vec<D16> Narrow(D16 d16, D d, hn::Vec<D> value) {
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::BitCast(du, value);
    const auto upper = hn::ShiftRight<16>(bits);
    const auto odd = hn::And(upper, hn::Set(du, 1U));
    const auto rounded =
        hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(du, 0x7fffU)), odd));
    const auto nan = hn::Or(upper, hn::Set(du, 0x40U));
    const auto is_nan = hn::RebindMask(du, hn::IsNaN(value));
    static_cast<void>(d);
    return hn::TruncateTo(d16, hn::IfThenElse(is_nan, nan, rounded));
  }
};

// An operation on elements of 16 bits.
template <class Format, class Op>
struct Narrowed {
  template <class D, class V>
  static HWY_INLINE V Apply(D d, V a, V b) {
    const hn::Rebind<float, D> wide;
    return Format::Narrow(
        d, wide,
        Op::Apply(wide, Format::Widen(wide, a), Format::Widen(wide, b)));
  }
};

// As long as a vector is: of 16 bits, only as many as float32 has.
template <typename T>
using TagOf =
    std::conditional_t<std::is_same_v<T, std::uint16_t>,
                       hn::Rebind<std::uint16_t, hn::ScalableTag<float>>,
                       hn::ScalableTag<T>>;

// A reduction that is under way: `at` is its next element. Whatever a vector is
// computed from is read before anything is stored there, as `out` may be an
// operand too. Stores are aligned where out is; they need not be.
template <typename T, class Op>
struct RunningReduction {
  T* out;
  const T* own;
  const void* const* received;
  int sources;
  std::size_t count;
  std::size_t at = 0;

  // Blocks of four vectors, as many as there are: they keep enough loads in
  // flight for the caches. kOneSource makes `sources` a constant and keeps the
  // source's address in a register; without it the addresses are read again for
  // each block, as for all that the compiler knows a store to `out` may change
  // them.
  //
  // The fences, which bind the compiler and are no instructions, keep the loads
  // of own together and the stores at the end: GCC mixes them otherwise, which
  // is up to 7 % slower from the second-level cache (host_reduction_benchmark).
  template <bool kOneSource, class D>
  void Blocks(D d) {
    const int many = kOneSource ? 1 : sources;
    const T* const first = static_cast<const T*>(received[0]);
    const std::size_t lanes = hn::Lanes(d);
    std::size_t i = at;
    for (; i + 4 * lanes <= count; i += 4 * lanes) {
      const T* const a = own + i;
      auto v0 = hn::LoadU(d, a);
      auto v1 = hn::LoadU(d, a + lanes);
      auto v2 = hn::LoadU(d, a + 2 * lanes);
      auto v3 = hn::LoadU(d, a + 3 * lanes);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      for (int s = 0; s < many; ++s) {
        const T* const b =
            (kOneSource ? first : static_cast<const T*>(received[s])) + i;
        v0 = Op::Apply(d, v0, hn::LoadU(d, b));
        v1 = Op::Apply(d, v1, hn::LoadU(d, b + lanes));
        v2 = Op::Apply(d, v2, hn::LoadU(d, b + 2 * lanes));
        v3 = Op::Apply(d, v3, hn::LoadU(d, b + 3 * lanes));
      }
      std::atomic_signal_fence(std::memory_order_seq_cst);
      T* const to = out + i;
      hn::StoreU(v0, d, to);
      hn::StoreU(v1, d, to + lanes);
      hn::StoreU(v2, d, to + 2 * lanes);
      hn::StoreU(v3, d, to + 3 * lanes);
    }
    at = i;
  }

  template <class D>
  HWY_INLINE void Vector(D d) {
    auto v = hn::LoadU(d, own + at);
    for (int s = 0; s < sources; ++s) {
      v = Op::Apply(d, v,
                    hn::LoadU(d, static_cast<const T*>(received[s]) + at));
    }
    hn::StoreU(v, d, out + at);
    at += hn::Lanes(d);
  }

  // `elements`, less than 2 * kMost, in vectors whose lengths are powers of
  // two. Shortest first leads to an aligned target, longest first leads on from
  // there: no store crosses a page, which takes as long as hundreds of bytes.
  template <std::size_t kMost>
  HWY_INLINE void ShortestFirst(std::size_t elements) {
    if constexpr (kMost > 1) {
      ShortestFirst<kMost / 2>(elements);
    }
    Part<kMost>(elements);
  }
  template <std::size_t kMost>
  HWY_INLINE void LongestFirst(std::size_t elements) {
    Part<kMost>(elements);
    if constexpr (kMost > 1) {
      LongestFirst<kMost / 2>(elements);
    }
  }

 private:
  template <std::size_t kLanes>
  HWY_INLINE void Part(std::size_t elements) {
    if ((elements & kLanes) != 0) {
      Vector(hn::CappedTag<T, kLanes>());
    }
  }
};

// A ReduceFunction.
template <typename T, class Op>
void Reduce(void* target, const void* own, const void* const* received,
            int sources, std::size_t count) {
  const TagOf<T> d;
  const std::size_t lanes = hn::Lanes(d);
  constexpr std::size_t kHalf = std::max<std::size_t>(hn::MaxLanes(d) / 2, 1);
  const std::size_t unaligned = -reinterpret_cast<std::uintptr_t>(target) %
                                (lanes * sizeof(T)) / sizeof(T);
  RunningReduction<T, Op> running = {static_cast<T*>(target),
                                     static_cast<const T*>(own), received,
                                     sources, count};
  running.template ShortestFirst<kHalf>(std::min(unaligned, count));
  if (sources == 1) {
    running.template Blocks<true>(d);
  } else {
    running.template Blocks<false>(d);
  }
  while (running.at + lanes <= count) {
    running.Vector(d);
  }
  running.template LongestFirst<kHalf>(count - running.at);
}

// data[i] = data[i] / size for floating-point T; a multiplication by the
// reciprocal would round differently.
template <typename T>
void DivideFloat(void* data, std::size_t count, int size) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  T* const values = static_cast<T*>(data);
  const T divisor = static_cast<T>(size);
  const auto divisors = hn::Set(d, divisor);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::Div(hn::LoadU(d, values + i), divisors), d, values + i);
  }
  for (; i < count; ++i) {  // IEEE 754 division has one result
    values[i] = values[i] / divisor;
  }
}

// The same for 16 bits.
template <class Format>
void DivideNarrow(void* data, std::size_t count, int size) {
  const hn::ScalableTag<float> d;
  auto* const values = static_cast<std::uint16_t*>(data);
  const auto divide = [&](const auto d16, std::size_t i) {
    const hn::Rebind<float, decltype(d16)> wide;
    const auto quotient =
        hn::Div(Format::Widen(wide, hn::LoadU(d16, values + i)),
                hn::Set(wide, static_cast<float>(size)));
    hn::StoreU(Format::Narrow(d16, wide, quotient), d16, values + i);
  };
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    divide(TagOf<std::uint16_t>(), i);
  }
  for (; i < count; ++i) {
    divide(hn::CappedTag<std::uint16_t, 1>(), i);
  }
}

// A ScaleFunction. Multiplication has one result, in a vector or alone.
template <typename T>
void ScaleFloat(void* target, const void* source, std::size_t count,
                double factor) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  T* const to = static_cast<T*>(target);
  const T* const from = static_cast<const T*>(source);
  const T narrow = static_cast<T>(factor);
  const auto factors = hn::Set(d, narrow);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, from + i), factors), d, to + i);
  }
  for (; i < count; ++i) {
    to[i] = from[i] * narrow;
  }
}

// The same for 16 bits.
template <class Format>
void ScaleNarrow(void* target, const void* source, std::size_t count,
                 double factor) {
  const hn::ScalableTag<float> d;
  auto* const to = static_cast<std::uint16_t*>(target);
  const auto* const from = static_cast<const std::uint16_t*>(source);
  const auto scale = [&](const auto d16, std::size_t i) {
    const hn::Rebind<float, decltype(d16)> wide;
    const auto product = hn::Mul(Format::Widen(wide, hn::LoadU(d16, from + i)),
                                 hn::Set(wide, static_cast<float>(factor)));
    hn::StoreU(Format::Narrow(d16, wide, product), d16, to + i);
  };
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    scale(TagOf<std::uint16_t>(), i);
  }
  for (; i < count; ++i) {
    scale(hn::CappedTag<std::uint16_t, 1>(), i);
  }
}

// `T` is an element as it is stored; `Form` makes an operation one on those.
template <class Op>
struct Plain : Op {};
template <class Op>
using OnFloat16 = Narrowed<Float16Format, Op>;
template <class Op>
using OnBfloat16 = Narrowed<Bfloat16Format, Op>;

template <typename T, template <class> class Form = Plain>
ReduceFunction FindOp(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return &Reduce<T, Form<SumOp>>;
    case ReduceOp::kMin:
      return &Reduce<T, Form<MinOp>>;
    case ReduceOp::kMax:
      return &Reduce<T, Form<MaxOp>>;
    case ReduceOp::kProd:
      return &Reduce<T, Form<ProdOp>>;
  }
  return nullptr;
}

ReduceFunction FindKernel(DataType type, ReduceOp op) {
  switch (type) {
    case DataType::kFloat32:
      return FindOp<float>(op);
    case DataType::kFloat64:
      return FindOp<double>(op);
    case DataType::kInt32:
      return FindOp<std::int32_t>(op);
    case DataType::kInt64:
      return FindOp<std::int64_t>(op);
    case DataType::kInt8:
      return FindOp<std::int8_t>(op);
    case DataType::kUint8:
      return FindOp<std::uint8_t>(op);
    case DataType::kUint32:
      return FindOp<std::uint32_t>(op);
    case DataType::kUint64:
      return FindOp<std::uint64_t>(op);
    case DataType::kFloat16:
      return FindOp<std::uint16_t, OnFloat16>(op);
    case DataType::kBfloat16:
      return FindOp<std::uint16_t, OnBfloat16>(op);
  }
  return nullptr;
}

// nullptr for integers.
FinishFunction FindFloatDivision(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return &DivideFloat<float>;
    case DataType::kFloat64:
      return &DivideFloat<double>;
    case DataType::kFloat16:
      return &DivideNarrow<Float16Format>;
    case DataType::kBfloat16:
      return &DivideNarrow<Bfloat16Format>;
    default:
      return nullptr;
  }
}

// nullptr for integers.
ScaleFunction FindFloatScale(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return &ScaleFloat<float>;
    case DataType::kFloat64:
      return &ScaleFloat<double>;
    case DataType::kFloat16:
      return &ScaleNarrow<Float16Format>;
    case DataType::kBfloat16:
      return &ScaleNarrow<Bfloat16Format>;
    default:
      return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ringpipe
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ringpipe {
namespace {

HWY_EXPORT(FindKernel);
HWY_EXPORT(FindFloatDivision);
HWY_EXPORT(FindFloatScale);

// data[i] = data[i] / size, truncated toward zero. `size` may be too large for
// T, hence the division in (at least) int; no CPU divides integer vectors.
template <typename T>
void DivideInteger(void* data, std::size_t count, int size) {
  using Wide = std::common_type_t<T, int>;
  T* const values = static_cast<T*>(data);
  const auto divisor = static_cast<Wide>(size);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<T>(static_cast<Wide>(values[i]) / divisor);
  }
}

}  // namespace

ReduceFunction FindReduction(DataType type, ReduceOp op) {
  return HWY_DYNAMIC_DISPATCH(FindKernel)(type, op);
}

FinishFunction FindFinish(DataType type, ReduceOp op) {
  if (op != ReduceOp::kAverage) {
    return nullptr;
  }
  switch (type) {
    case DataType::kFloat32:
    case DataType::kFloat64:
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return HWY_DYNAMIC_DISPATCH(FindFloatDivision)(type);
    case DataType::kInt32:
      return &DivideInteger<std::int32_t>;
    case DataType::kInt64:
      return &DivideInteger<std::int64_t>;
    case DataType::kInt8:
      return &DivideInteger<std::int8_t>;
    case DataType::kUint8:
      return &DivideInteger<std::uint8_t>;
    case DataType::kUint32:
      return &DivideInteger<std::uint32_t>;
    case DataType::kUint64:
      return &DivideInteger<std::uint64_t>;
  }
  return nullptr;
}

ScaleFunction FindScale(DataType type) {
  return HWY_DYNAMIC_DISPATCH(FindFloatScale)(type);
}

namespace {

// The reduction of operands that are scaled before: by pieces that stay in the
// first-level cache, because the operands must not be written.
void ReduceScaled(DataType type, ReduceOp op, void* target, const void* own,
                  std::span<const void* const> received, std::size_t count,
                  const Scaling& scaling) {
  constexpr std::size_t kPieceBytes = 4096;
  alignas(64) std::array<std::byte, kPieceBytes> own_piece;
  alignas(64) std::array<std::byte, kPieceBytes> received_piece;
  const ReduceFunction reduce = FindReduction(type, op);
  const ScaleFunction scale = FindScale(type);
  const std::size_t bytes = SizeOf(type);
  const auto at = [bytes](const void* data, std::size_t element) {
    return static_cast<const std::byte*>(data) + element * bytes;
  };
  for (std::size_t i = 0; i < count;) {
    const std::size_t length = std::min(count - i, kPieceBytes / bytes);
    const void* first = at(own, i);
    const void* second = at(received[0], i);
    if (scaling.own != 1) {
      scale(own_piece.data(), first, length, scaling.own);
      first = own_piece.data();
    }
    if (scaling.received != 1) {
      scale(received_piece.data(), second, length, scaling.received);
      second = received_piece.data();
    }
    // The target may be what was received last.
    for (std::size_t source = 0; source < received.size(); ++source) {
      const void* const next = source == 0 ? second : at(received[source], i);
      void* const to = source + 1 < received.size()
                           ? own_piece.data()
                           : static_cast<std::byte*>(target) + i * bytes;
      reduce(to, source == 0 ? first : own_piece.data(), &next, 1, length);
    }
    i += length;
  }
}

}  // namespace

void ReduceAndScale(DataType type, ReduceOp op, void* target, const void* own,
                    std::span<const void* const> received, std::size_t count,
                    const Scaling& scaling) {
  if (scaling.own == 1 && scaling.received == 1) {
    FindReduction(type, op)(target, own, received.data(),
                            static_cast<int>(received.size()), count);
  } else {
    ReduceScaled(type, op, target, own, received, count, scaling);
  }
  if (scaling.complete > 0) {
    if (const FinishFunction finish = FindFinish(type, op)) {
      finish(target, count, scaling.complete);
    }
  }
  if (scaling.result != 1) {
    FindScale(type)(target, target, count, scaling.result);
  }
}

}  // namespace ringpipe
#endif  // HWY_ONCE
