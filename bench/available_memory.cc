#include "bench/available_memory.h"

#include <fstream>
#include <limits>
#include <string>

#include "bench/byte_size.h"

namespace ringpipe {

std::optional<std::uint64_t> AvailableMemory() {
  std::ifstream meminfo("/proc/meminfo");
  std::string name;
  std::uint64_t kib = 0;
  std::string unit;
  while (meminfo >> name >> kib) {
    if (name == "MemAvailable:") {
      return kib * 1024;
    }
    std::getline(meminfo, unit);
  }
  return std::nullopt;
}

Status CheckMemory(const Options& options, int ranks, std::uint64_t available) {
  const auto buffers = 2 * static_cast<std::uint64_t>(ranks);
  const bool fits = options.max_bytes <= available / buffers;
  if (fits) {
    return {};
  }
  // Sizes are below 2^62 and buffers at most 2^11: as floating point, because
  // the product may not fit into 64 bits.
  const double needed =
      static_cast<double>(options.max_bytes) * static_cast<double>(buffers);
  const std::string amount =
      needed < 0x1p62 ? FormatByteSize(static_cast<std::uint64_t>(needed))
                      : std::to_string(needed);
  return {StatusCode::kResourceExhausted,
          std::to_string(ranks) + " ranks on this host need " + amount +
              " bytes of memory for two buffers of " +
              FormatByteSize(options.max_bytes) + " each, and " +
              FormatByteSize(available) +
              " are available; use a smaller -e (--maxbytes) or fewer ranks"};
}

}  // namespace ringpipe
