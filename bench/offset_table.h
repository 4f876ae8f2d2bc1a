// The speed of HostCopy, of memcpy and of reductions by where their ranges
// begin in a page.
#ifndef RINGPIPE_BENCH_OFFSET_TABLE_H_
#define RINGPIPE_BENCH_OFFSET_TABLE_H_

#include <chrono>
#include <cstddef>
#include <ostream>
#include <span>

namespace ringpipe {

// Prints, for each of `sizes`, the speed of each pair of offsets: of each the
// fastest of many samples, which take turns for `time`. At the end, the slowest
// pair of each size beside the fastest.
void PrintOffsetTable(std::ostream& out, std::span<const std::size_t> sizes,
                      std::chrono::milliseconds time);

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_OFFSET_TABLE_H_
