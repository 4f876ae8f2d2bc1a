// The kernels are compiled once for each instruction set below, by including
// this file again and again (foreach_target.h); the best that the CPU has is
// chosen at run time.
#include "reduction/host_reduction.h"

#include <atomic>
#include <cstdint>
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

// own[i] OP received[0][i] OP ... for the lanes of one vector, from `at` on.
template <class Op, class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> Combine(D d, const T* own, const void* const* received,
                              int sources, std::size_t at) {
  auto v = hn::LoadU(d, own + at);
  for (int s = 0; s < sources; ++s) {
    v = Op::Apply(d, v, hn::LoadU(d, static_cast<const T*>(received[s]) + at));
  }
  return v;
}

// Reduces as much as fills blocks of four vectors, which keep enough loads in
// flight for the caches; returns how many elements that was. kOneSource makes
// `sources` a constant and keeps the source's address in a register; without it
// the addresses are read again for each block, as for all that the compiler
// knows a store to `out` may change them.
//
// The fences, which bind the compiler and are no instructions, keep the loads
// of own together and the stores at the end: GCC mixes them otherwise, which
// is up to 7 % slower from the second-level cache (host_reduction_benchmark).
template <class Op, bool kOneSource, class D, typename T = hn::TFromD<D>>
std::size_t ReduceBlocks(D d, T* out, const T* own, const void* const* received,
                         int given, std::size_t count) {
  const int sources = kOneSource ? 1 : given;
  const T* const first = static_cast<const T*>(received[0]);
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const T* const a = own + i;
    auto v0 = hn::LoadU(d, a);
    auto v1 = hn::LoadU(d, a + lanes);
    auto v2 = hn::LoadU(d, a + 2 * lanes);
    auto v3 = hn::LoadU(d, a + 3 * lanes);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    for (int s = 0; s < sources; ++s) {
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
  return i;
}

// A ReduceFunction. Whatever a vector is computed from is read before anything
// is stored there, as `target` may be an operand too.
template <typename T, class Op>
void Reduce(void* target, const void* own_memory, const void* const* received,
            int sources, std::size_t count) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  T* const out = static_cast<T*>(target);
  const T* const own = static_cast<const T*>(own_memory);
  if (count < lanes) {
    const hn::CappedTag<T, 1> one;
    for (std::size_t i = 0; i < count; ++i) {
      hn::StoreU(Combine<Op>(one, own, received, sources, i), one, out + i);
    }
    return;
  }

  // The rest that fills no vector is done as part of the last one that fits,
  // which overlaps the one before: computed now, from elements that nothing has
  // changed yet, and stored at the end. (A vector on the stack would do too,
  // but GCC 12 and AddressSanitizer disagree on its alignment.)
  const std::size_t last = count - lanes;
  const auto last_result = Combine<Op>(d, own, received, sources, last);

  std::size_t i =
      sources == 1
          ? ReduceBlocks<Op, true>(d, out, own, received, 1, count)
          : ReduceBlocks<Op, false>(d, out, own, received, sources, count);
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(Combine<Op>(d, own, received, sources, i), d, out + i);
  }
  hn::StoreU(last_result, d, out + last);
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

template <typename T>
ReduceFunction FindOp(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return &Reduce<T, SumOp>;
    case ReduceOp::kMin:
      return &Reduce<T, MinOp>;
    case ReduceOp::kMax:
      return &Reduce<T, MaxOp>;
    case ReduceOp::kProd:
      return &Reduce<T, ProdOp>;
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

// data[i] = data[i] / size, truncated toward zero. `size` may be too large for
// T, hence the division in (at least) int; no CPU divides integer vectors.
template <typename T>
void DivideInteger(void* data, std::size_t count, int size) {
  using Wide = std::common_type_t<T, int>;
  T* const values = static_cast<T*>(data);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<T>(static_cast<Wide>(values[i]) / size);
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
      return HWY_DYNAMIC_DISPATCH(FindFloatDivision)(type);
    case DataType::kInt32:
      return &DivideInteger<std::int32_t>;
    case DataType::kInt64:
      return &DivideInteger<std::int64_t>;
    case DataType::kInt8:
      return &DivideInteger<std::int8_t>;
    case DataType::kUint8:
      return &DivideInteger<std::uint8_t>;
  }
  return nullptr;
}

}  // namespace ringpipe
#endif  // HWY_ONCE
