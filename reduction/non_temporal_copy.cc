#include "reduction/non_temporal_copy.h"

#include <cstdint>
#include <cstring>

// Sanitizers see ordinary stores alone.
#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
#define RINGPIPE_STREAMS
#include <emmintrin.h>
#endif

namespace ringpipe {

void NonTemporalCopy(std::byte* target, const std::byte* source,
                     std::size_t bytes) {
#ifdef RINGPIPE_STREAMS
  constexpr std::size_t kLine = 64;
  const std::size_t before =
      (kLine - reinterpret_cast<std::uintptr_t>(target) % kLine) % kLine;
  if (bytes >= before + kLine) {
    std::memcpy(target, source, before);
    target += before;
    source += before;
    bytes -= before;
    for (; bytes >= kLine; bytes -= kLine, target += kLine, source += kLine) {
      auto* const to = reinterpret_cast<__m128i*>(target);
      const auto* const from = reinterpret_cast<const __m128i*>(source);
      const __m128i a = _mm_loadu_si128(from);
      const __m128i b = _mm_loadu_si128(from + 1);
      const __m128i c = _mm_loadu_si128(from + 2);
      const __m128i d = _mm_loadu_si128(from + 3);
      _mm_stream_si128(to, a);
      _mm_stream_si128(to + 1, b);
      _mm_stream_si128(to + 2, c);
      _mm_stream_si128(to + 3, d);
    }
    _mm_sfence();
  }
#endif
  if (bytes > 0) {
    std::memcpy(target, source, bytes);
  }
}

}  // namespace ringpipe
