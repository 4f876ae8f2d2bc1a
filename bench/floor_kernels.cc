#include "bench/floor_kernels.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "bench/vector_clones.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ringpipe {
namespace {

// What is summed up before it is copied to the destinations stays in the
// first-level cache.
constexpr std::size_t kBlock = 4096;  // floats
// More streams at a time than this, each from memory, slow each other down.
constexpr std::size_t kStreams = 4;

// Eight floats at any multiple of four bytes.
using Wide [[gnu::vector_size(32), gnu::aligned(4), gnu::may_alias]] = float;

// A loop body for each of the instruction sets of the callers below.
template <std::size_t kSources>
[[gnu::always_inline]] inline void AddInto(float* to, const float* const* from,
                                           std::size_t count) {
  std::array<const float*, kSources> source;
  std::copy_n(from, kSources, source.begin());
  constexpr std::size_t kLanes = sizeof(Wide) / sizeof(float);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Wide sum = *reinterpret_cast<const Wide*>(source[0] + i);
    for (std::size_t s = 1; s < kSources; ++s) {
      sum += *reinterpret_cast<const Wide*>(source[s] + i);
    }
    *reinterpret_cast<Wide*>(to + i) = sum;
  }
  for (; i < count; ++i) {
    float sum = source[0][i];
    for (std::size_t s = 1; s < kSources; ++s) {
      sum += source[s][i];
    }
    to[i] = sum;
  }
}

// to[i] = from[0][i] + ... + from[sources - 1][i], for 1 to kStreams + 1.
RINGPIPE_VECTOR_CLONES
void AddFew(float* to, const float* const* from, std::size_t sources,
            std::size_t count) {
  switch (sources) {
    case 1:
      return AddInto<1>(to, from, count);
    case 2:
      return AddInto<2>(to, from, count);
    case 3:
      return AddInto<3>(to, from, count);
    case 4:
      return AddInto<4>(to, from, count);
    default:
      return AddInto<kStreams + 1>(to, from, count);
  }
}

void StreamCopy(float* to, const float* from, std::size_t count) {
  std::size_t i = 0;
#if defined(__x86_64__)
  constexpr std::size_t kLine = 16;  // floats
  for (; i + kLine <= count; i += kLine) {
    for (std::size_t j = i; j < i + kLine; j += 4) {
      _mm_stream_ps(to + j, _mm_loadu_ps(from + j));
    }
  }
#endif
  std::copy(from + i, from + count, to + i);
}

// Into `to`, which none of the sources is; kStreams of them at a time.
void AddAll(float* to, std::span<const float* const> from, std::size_t offset,
            std::size_t count) {
  std::array<const float*, kStreams + 1> some;
  std::size_t next = 0;
  while (next < from.size()) {
    std::size_t taken = 0;
    if (next > 0) {
      some[taken++] = to;
    }
    for (std::size_t i = 0; i < kStreams && next < from.size(); ++i) {
      some[taken++] = from[next++] + offset;
    }
    AddFew(to, some.data(), taken, count);
  }
}

}  // namespace

void CopyFloats(Stores stores, float* to, const float* from,
                std::size_t count) {
  if (stores == Stores::kStreaming) {
    StreamCopy(to, from, count);
  } else {
    std::memcpy(to, from, count * sizeof(float));
  }
}

void SumFloats(Stores stores, std::span<float* const> to,
               std::span<const float* const> from, std::size_t count) {
  alignas(64) std::array<float, kBlock> sum;
  for (std::size_t at = 0; at < count; at += kBlock) {
    const std::size_t block = std::min(kBlock, count - at);
    AddAll(sum.data(), from, at, block);
    for (float* const destination : to) {
      CopyFloats(stores, destination + at, sum.data(), block);
    }
  }
}

void FinishStores() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace ringpipe
