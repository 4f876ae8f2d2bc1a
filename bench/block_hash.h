// A 64-bit hash of memory, for telling whether ranks hold the same bytes.
#ifndef RINGPIPE_BENCH_BLOCK_HASH_H_
#define RINGPIPE_BENCH_BLOCK_HASH_H_

#include <cstddef>
#include <cstdint>

namespace ringpipe {

// Two memories that differ in one 8-byte word never have the same hash; others
// do with probability about 2^-64. Not for use against an adversary. Runs at
// the speed of memory.
std::uint64_t BlockHash(const void* data, std::size_t bytes);

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_BLOCK_HASH_H_
