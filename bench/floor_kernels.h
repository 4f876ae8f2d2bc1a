// The loops of bench/floor: sums and copies of floats, with ordinary stores and
// with non-temporal ones, which bypass the caches.
#ifndef RINGPIPE_BENCH_FLOOR_KERNELS_H_
#define RINGPIPE_BENCH_FLOOR_KERNELS_H_

#include <cstddef>
#include <span>

namespace ringpipe {

enum class Stores { kOrdinary, kStreaming };

// to[i] = from[i]. Streaming stores need `to` aligned to 16 bytes.
void CopyFloats(Stores stores, float* to, const float* from, std::size_t count);

// to[d][i] = sum over s of from[s][i], for every destination d. A destination
// may be one of the sources, from its first element on. Any number of each;
// buffers are aligned to 16 bytes.
void SumFloats(Stores stores, std::span<float* const> to,
               std::span<const float* const> from, std::size_t count);

// After streaming stores, before others may read what was stored.
void FinishStores();

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_FLOOR_KERNELS_H_
