#include "bench/available_memory.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/memory_left.h"
#include "bench/byte_size.h"
#include "engine/algorithms.h"

namespace ringpipe {

std::optional<std::uint64_t> AvailableMemory() {
  const std::optional<MemoryLeft> left = LookUpMemoryLeft();
  return left ? std::optional(left->bytes) : std::nullopt;
}

std::uint64_t BytesOfRank(int ranks) {
  // What it maps and opens of each peer; and each peer tells it where all are.
  const auto peers = static_cast<std::uint64_t>(ranks);
  return (2 << 20) + (21 << 10) * peers + 40 * peers * peers;
}

std::uint64_t BytesOfSlots(const Options& options,
                           const Environment& environment, int ranks) {
  // Messages are parts of the buffer, one for each rank; or short buffers as a
  // whole, where many ranks share a processor.
  constexpr std::uint64_t kShort = 4096;
  constexpr std::uint64_t kMostWhole = 256 << 10;
  const std::uint64_t longest = std::max(
      options.max_bytes / ranks, std::min(options.max_bytes, kMostWhole));
  if (options.memory == MemoryPlace::kHost &&
      (options.buffers == BufferKind::kAllocated || longest <= kShort)) {
    return 0;
  }
  const AlgorithmChoice algorithms;  // the engine's
  const Member self = {.rank = 0, .size = ranks};
  const CommonHost host = {.ranks = ranks};
  const int depth = algorithms.DepthFor(static_cast<int>(environment.depth),
                                        environment.subchunk_bytes, self, host);
  const std::int64_t slots = environment.slots > 0
                                 ? environment.slots
                                 : algorithms.Slots(self, depth, host);
  return static_cast<std::uint64_t>(slots * environment.subchunk_bytes);
}

Status CheckMemory(int ranks, double each, std::uint64_t available,
                   const std::string& what, const std::string& advice) {
  // As floating point, because the product may not fit into 64 bits.
  const double needed = each * ranks;
  if (needed <= static_cast<double>(available)) {
    return {};
  }
  const std::string amount =
      needed < 0x1p62 ? FormatByteSize(static_cast<std::uint64_t>(needed))
                      : std::to_string(needed);
  return {StatusCode::kResourceExhausted,
          std::to_string(ranks) + " ranks on this host need " + amount +
              " bytes of memory (" + what + "), and " +
              FormatByteSize(available) +
              " are available, by the host and by the limits of the control "
              "group (container, job) that this process is in; use " +
              advice};
}

Status CheckMemory(const Options& options, int ranks, std::uint64_t besides,
                   std::uint64_t available) {
  const bool on_host = options.memory == MemoryPlace::kHost;
  const int buffers = on_host ? 2 * options.rotate : 1;
  return CheckMemory(
      ranks,
      static_cast<double>(buffers) * static_cast<double>(options.max_bytes) +
          static_cast<double>(besides),
      available,
      "each " +
          (buffers == 1   ? "a copy of a buffer"
           : buffers == 2 ? "two buffers"
                          : std::to_string(buffers) + " buffers") +
          " of " + FormatByteSize(options.max_bytes) + ", and " +
          FormatByteSize(besides) + " besides",
      "a smaller -e (--maxbytes)" +
          std::string(buffers > 2 ? ", a smaller --rotate" : "") +
          " or fewer ranks");
}

}  // namespace ringpipe
