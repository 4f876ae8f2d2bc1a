// The reductions of device memory and of slots, one kernel for each type and
// operation; without sources, a kernel only scales. Semantics as in
// reduction/host_reduction.h, to the bit, so floating point is compiled without
// contraction.
//
// Free-standing: no header, neither CUDA's nor the language's. clang makes
// reduce.ptx of it, which is checked in (make_ptx), and nvcc understands it
// too.

#ifdef __NVCC__
#define RINGPIPE_THREAD threadIdx.x
#define RINGPIPE_BLOCK blockIdx.x
#define RINGPIPE_BLOCK_SIZE blockDim.x
#define RINGPIPE_GRID_SIZE gridDim.x
#else
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define RINGPIPE_THREAD __nvvm_read_ptx_sreg_tid_x()
#define RINGPIPE_BLOCK __nvvm_read_ptx_sreg_ctaid_x()
#define RINGPIPE_BLOCK_SIZE __nvvm_read_ptx_sreg_ntid_x()
#define RINGPIPE_GRID_SIZE __nvvm_read_ptx_sreg_nctaid_x()
#endif

namespace {

// Accelerator::kMostSources.
constexpr int kMostSources = 8;

// What is read and written in one piece wherever all addresses allow it.
constexpr unsigned kVectorBytes = 16;

// cuda/reduce_kernels.h has the same for the host.
struct Parameters {
  void* target;
  void* copy;  // of the result, elsewhere; null: there is none
  const void* own;
  const void* received[kMostSources];
  unsigned long long count;
  int sources;
  int divisor;  // 0: the results are not divided
  // 1: nothing is multiplied. Floating-point types alone.
  double own_factor;
  double received_factor;  // of received[0]
  double result_factor;
};

// The type in which integers are added and multiplied, so that they wrap
// around; `Wide` is that in which they are divided.
template <typename T>
struct Arithmetic {
  using Wrapping = T;
  using Wide = T;
};
template <>
struct Arithmetic<int> {
  using Wrapping = unsigned;
  using Wide = int;
};
template <>
struct Arithmetic<long long> {
  using Wrapping = unsigned long long;
  using Wide = long long;
};
template <>
struct Arithmetic<signed char> {
  using Wrapping = unsigned char;
  using Wide = int;
};
template <>
struct Arithmetic<unsigned char> {
  using Wrapping = unsigned char;
  using Wide = int;
};

__device__ float AsFloat(unsigned bits) {
  union {
    unsigned bits;
    float value;
  } both = {bits};
  return both.value;
}

__device__ unsigned AsBits(float value) {
  union {
    float value;
    unsigned bits;
  } both = {value};
  return both.bits;
}

// The types of 16 bits, which are computed with as float and rounded after each
// step, as in reduction/narrow_float.h.
struct Float16 {
  unsigned short bits;

  static __device__ float Widen(Float16 narrow) {
    const unsigned magnitude = (narrow.bits & 0x7fffu) << 13;
    const unsigned scaled = AsBits(AsFloat(magnitude) * 0x1p112f);
    const unsigned special = magnitude >= (31u << 23) ? 255u << 23 : 0;
    return AsFloat(scaled | special | (narrow.bits & 0x8000u) << 16);
  }
  static __device__ Float16 Narrow(float value) {
    const unsigned bits = AsBits(value);
    const unsigned magnitude = bits & 0x7fffffffu;
    const unsigned denormal = AsBits(AsFloat(magnitude) + 0.5f) - (126u << 23);
    const unsigned normal =
        (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    const unsigned narrow = magnitude > (255u << 23)    ? 0x7e00
                            : magnitude >= (143u << 23) ? 0x7c00
                            : magnitude < (113u << 23)  ? denormal
                                                        : normal;
    return {static_cast<unsigned short>(narrow | (bits >> 16 & 0x8000u))};
  }
};

struct Bfloat16 {
  unsigned short bits;

  static __device__ float Widen(Bfloat16 narrow) {
    return AsFloat(static_cast<unsigned>(narrow.bits) << 16);
  }
  static __device__ Bfloat16 Narrow(float value) {
    const unsigned bits = AsBits(value);
    return {static_cast<unsigned short>(
        value != value ? bits >> 16 | 0x40
                       : (bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
  }
};

// What an element is computed as.
template <typename T>
struct Computed {
  static __device__ T Of(T value) { return value; }
  static __device__ T Stored(T value) { return value; }
};
template <>
struct Computed<Float16> {
  static __device__ float Of(Float16 value) { return Float16::Widen(value); }
  static __device__ Float16 Stored(float value) {
    return Float16::Narrow(value);
  }
};
template <>
struct Computed<Bfloat16> {
  static __device__ float Of(Bfloat16 value) { return Bfloat16::Widen(value); }
  static __device__ Bfloat16 Stored(float value) {
    return Bfloat16::Narrow(value);
  }
};

struct Sum {
  template <typename T>
  static __device__ T Apply(T a, T b) {
    using W = typename Arithmetic<T>::Wrapping;
    return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
  }
};

struct Product {
  template <typename T>
  static __device__ T Apply(T a, T b) {
    using W = typename Arithmetic<T>::Wrapping;
    return static_cast<T>(static_cast<W>(a) * static_cast<W>(b));
  }
};

// b != b where b is NaN; where only a is, the comparison is false.
struct Minimum {
  template <typename T>
  static __device__ T Apply(T a, T b) {
    return b < a || b != b ? b : a;
  }
};

struct Maximum {
  template <typename T>
  static __device__ T Apply(T a, T b) {
    return a < b || b != b ? b : a;
  }
};

template <typename T>
__device__ T Divide(T value, int divisor) {
  using W = typename Arithmetic<T>::Wide;
  return static_cast<T>(static_cast<W>(value) / static_cast<W>(divisor));
}

// `factor` in the type in which a floating-point type is computed.
__device__ float Multiply(float value, double factor) {
  return value * static_cast<float>(factor);
}
__device__ double Multiply(double value, double factor) {
  return value * factor;
}
template <typename T>
__device__ T Multiply(T value, double) {
  return value;
}

// One element: what is read and written where an address is not a vector's.
template <typename T>
struct One {
  static constexpr int kSize = 1;
  __device__ T Get(int) const { return value; }
  __device__ void Set(int, T to) { value = to; }
  T value;
};

// The elements of kVectorBytes, read and written at once.
template <typename T>
struct alignas(kVectorBytes) Vector {
  static constexpr int kSize = kVectorBytes / sizeof(T);
  __device__ T Get(int i) const { return value[i]; }
  __device__ void Set(int i, T to) { value[i] = to; }
  T value[kSize];
};

// The bits of an element of less than a word.
template <typename T>
struct Bits {
  static __device__ unsigned Of(T value) {
    return static_cast<unsigned char>(value);
  }
  static __device__ T In(unsigned bits) { return static_cast<T>(bits); }
};
template <>
struct Bits<Float16> {
  static __device__ unsigned Of(Float16 value) { return value.bits; }
  static __device__ Float16 In(unsigned bits) {
    return {static_cast<unsigned short>(bits)};
  }
};
template <>
struct Bits<Bfloat16> {
  static __device__ unsigned Of(Bfloat16 value) { return value.bits; }
  static __device__ Bfloat16 In(unsigned bits) {
    return {static_cast<unsigned short>(bits)};
  }
};

// Such elements, in words: clang would read them by fours.
template <typename T>
struct alignas(kVectorBytes) PackedVector {
  static constexpr int kSize = kVectorBytes / sizeof(T);
  static constexpr int kInWord = 4 / sizeof(T);
  static constexpr unsigned kBits = 8 * sizeof(T);
  __device__ T Get(int i) const {
    return Bits<T>::In(word[i / kInWord] >> (i % kInWord * kBits));
  }
  __device__ void Set(int i, T to) {
    const unsigned shift = i % kInWord * kBits;
    const unsigned mask = (1u << kBits) - 1;
    word[i / kInWord] = (word[i / kInWord] & ~(mask << shift)) | Bits<T>::Of(to)
                                                                     << shift;
  }
  unsigned word[kVectorBytes / 4];
};

template <typename T>
struct VectorOf {
  using Type = Vector<T>;
};
template <>
struct VectorOf<signed char> {
  using Type = PackedVector<signed char>;
};
template <>
struct VectorOf<unsigned char> {
  using Type = PackedVector<unsigned char>;
};
template <>
struct VectorOf<Float16> {
  using Type = PackedVector<Float16>;
};
template <>
struct VectorOf<Bfloat16> {
  using Type = PackedVector<Bfloat16>;
};

// received[s]. With an index that is no constant the parameters would be copied
// to each thread's stack.
__device__ const void* Received(const Parameters& p, int s) {
  const void* received = p.received[0];
#pragma unroll
  for (int i = 1; i < kMostSources; ++i) {
    received = s == i ? p.received[i] : received;
  }
  return received;
}

template <typename T, typename Piece>
__device__ void ScalePiece(Piece& piece, double factor) {
  if (factor != 1) {
#pragma unroll
    for (int k = 0; k < Piece::kSize; ++k) {
      piece.Set(k, Computed<T>::Stored(
                       Multiply(Computed<T>::Of(piece.Get(k)), factor)));
    }
  }
}

// The i-th Piece of the result.
template <typename T, typename Op, typename Piece>
__device__ void ReducePiece(const Parameters& p, unsigned long long i) {
  Piece result = static_cast<const Piece*>(p.own)[i];
  ScalePiece<T>(result, p.own_factor);
#pragma unroll 1
  for (int s = 0; s < p.sources; ++s) {
    Piece piece = static_cast<const Piece*>(Received(p, s))[i];
    if (s == 0) {
      ScalePiece<T>(piece, p.received_factor);
    }
#pragma unroll
    for (int k = 0; k < Piece::kSize; ++k) {
      result.Set(k,
                 Computed<T>::Stored(Op::Apply(Computed<T>::Of(result.Get(k)),
                                               Computed<T>::Of(piece.Get(k)))));
    }
  }
  if (p.divisor != 0) {
#pragma unroll
    for (int k = 0; k < Piece::kSize; ++k) {
      result.Set(k, Computed<T>::Stored(
                        Divide(Computed<T>::Of(result.Get(k)), p.divisor)));
    }
  }
  ScalePiece<T>(result, p.result_factor);
  static_cast<Piece*>(p.target)[i] = result;
  if (p.copy != nullptr) {
    static_cast<Piece*>(p.copy)[i] = result;
  }
}

__device__ unsigned AddressBits(const void* pointer) {
  return static_cast<unsigned>(reinterpret_cast<unsigned long long>(pointer));
}

// Whether every address is that of a whole vector.
__device__ bool AllAligned(const Parameters& p) {
  unsigned bits =
      AddressBits(p.target) | AddressBits(p.copy) | AddressBits(p.own);
#pragma unroll
  for (int s = 0; s < kMostSources; ++s) {
    if (s < p.sources) {
      bits |= AddressBits(p.received[s]);
    }
  }
  return bits % kVectorBytes == 0;
}

// target[i] = own[i] OP received[0][i] OP ..., divided where that is asked for.
// Slots are host memory: each byte of one crosses the bus once when it is read,
// and once when it is written.
template <typename T, typename Op>
__device__ void Reduce(const Parameters& p) {
  using Whole = typename VectorOf<T>::Type;
  const unsigned long long first =
      static_cast<unsigned long long>(RINGPIPE_BLOCK) * RINGPIPE_BLOCK_SIZE +
      RINGPIPE_THREAD;
  const unsigned long long stride =
      static_cast<unsigned long long>(RINGPIPE_GRID_SIZE) * RINGPIPE_BLOCK_SIZE;
  unsigned long long done = 0;
  if (AllAligned(p)) {
    const unsigned long long vectors = p.count / Whole::kSize;
    for (unsigned long long i = first; i < vectors; i += stride) {
      ReducePiece<T, Op, Whole>(p, i);
    }
    done = vectors * Whole::kSize;
  }
#pragma unroll 1
  for (unsigned long long i = done + first; i < p.count; i += stride) {
    ReducePiece<T, Op, One<T>>(p, i);
  }
}

}  // namespace

#define RINGPIPE_KERNEL(type_name, T, op_name, Op)                    \
  extern "C" __global__ void ringpipe_reduce_##type_name##_##op_name( \
      const Parameters parameters) {                                  \
    Reduce<T, Op>(parameters);                                        \
  }
#define RINGPIPE_KERNELS_OF(type_name, T)      \
  RINGPIPE_KERNEL(type_name, T, sum, Sum)      \
  RINGPIPE_KERNEL(type_name, T, prod, Product) \
  RINGPIPE_KERNEL(type_name, T, min, Minimum)  \
  RINGPIPE_KERNEL(type_name, T, max, Maximum)

RINGPIPE_KERNELS_OF(float32, float)
RINGPIPE_KERNELS_OF(float64, double)
RINGPIPE_KERNELS_OF(int32, int)
RINGPIPE_KERNELS_OF(int64, long long)
RINGPIPE_KERNELS_OF(int8, signed char)
RINGPIPE_KERNELS_OF(uint8, unsigned char)
RINGPIPE_KERNELS_OF(uint32, unsigned)
RINGPIPE_KERNELS_OF(uint64, unsigned long long)
RINGPIPE_KERNELS_OF(float16, Float16)
RINGPIPE_KERNELS_OF(bfloat16, Bfloat16)
