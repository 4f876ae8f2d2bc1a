// What host memory decides by itself, with the figures: bench/README.md has the
// measurements behind them.
#ifndef RINGPIPE_PIPELINE_HOST_TUNING_H_
#define RINGPIPE_PIPELINE_HOST_TUNING_H_

#include <cstddef>
#include <cstdint>

namespace ringpipe {

// Messages of one stream that may be under way.
inline constexpr std::uint64_t kWindow = 64;

// The largest message that a first message brings along.
inline constexpr std::uint32_t kHostEagerBytes = 4096;
// The largest that lies in the cache line which says that it is there.
inline constexpr std::uint32_t kHostShortBytes = 40;

// From here on a message that is written into the peer's memory is written by
// non-temporal stores: it would push more out of the caches than it finds
// again.
inline constexpr std::uint32_t kNonTemporalBytes = 32 * 1024;

// The largest message that stays where it is; a larger one is no sub-chunk.
inline constexpr std::uint32_t kMostMessageBytes = 64 << 20;

static_assert((kWindow & (kWindow - 1)) == 0, "numbers are taken modulo it");
static_assert(kHostShortBytes < kHostEagerBytes);
static_assert(kHostEagerBytes < kNonTemporalBytes,
              "eager messages are copied twice, while they are in a cache");
static_assert(kNonTemporalBytes <= kMostMessageBytes);

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_HOST_TUNING_H_
