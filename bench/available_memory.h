// Whether a host has the memory that a run needs, before it is touched: a
// machine that overcommits kills somebody instead of saying no.
#ifndef RINGPIPE_BENCH_AVAILABLE_MEMORY_H_
#define RINGPIPE_BENCH_AVAILABLE_MEMORY_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/environment.h"
#include "base/status.h"
#include "bench/options.h"

namespace ringpipe {

// Bytes that this process and its children can still get without swapping: of
// the host (MemAvailable of /proc/meminfo), and of their control groups, which
// limit a container. nullopt where the system does not say.
std::optional<std::uint64_t> AvailableMemory();

// What each of `ranks` ranks, all of one host, takes without its buffers and
// slots, once they are connected and make short calls: a little more than was
// measured with 32 to 400 ranks.
std::uint64_t BytesOfRank(int ranks);

// What the slots of each of them take, by the longest message of `options`. 0
// where the buffers need none.
std::uint64_t BytesOfSlots(const Options& options,
                           const Environment& environment, int ranks);

// kResourceExhausted, with both figures, where `ranks` ranks on one host need
// more than `available` bytes. `each`: bytes of a rank; `what`: "each two
// buffers of 1G", `advice`: "fewer ranks".
Status CheckMemory(int ranks, double each, std::uint64_t available,
                   const std::string& what, const std::string& advice);

// The same of a benchmark, where the buffers of `ranks` ranks on one host
// (options.rotate pairs each, of options.max_bytes; where they are memory of a
// GPU, the host's copy of one) and what each takes `besides` are more than
// `available` bytes.
Status CheckMemory(const Options& options, int ranks, std::uint64_t besides,
                   std::uint64_t available);

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_AVAILABLE_MEMORY_H_
