// Whether a host has the memory that a run needs, before it is touched: a
// machine that overcommits kills somebody instead of saying no.
#ifndef RINGPIPE_BENCH_AVAILABLE_MEMORY_H_
#define RINGPIPE_BENCH_AVAILABLE_MEMORY_H_

#include <cstdint>
#include <optional>

#include "base/status.h"
#include "bench/options.h"

namespace ringpipe {

// Bytes that processes can still get without swapping (MemAvailable of
// /proc/meminfo); nullopt where the system does not say.
std::optional<std::uint64_t> AvailableMemory();

// kResourceExhausted, with both figures and what to do, where the buffers of
// `ranks` ranks on one host (two each, of options.max_bytes) are more than
// `available` bytes.
Status CheckMemory(const Options& options, int ranks, std::uint64_t available);

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_AVAILABLE_MEMORY_H_
