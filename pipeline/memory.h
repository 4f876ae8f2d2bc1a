#ifndef RINGPIPE_PIPELINE_MEMORY_H_
#define RINGPIPE_PIPELINE_MEMORY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "pipeline/abilities.h"

namespace ringpipe {

// A rank reaches others in no more ways than these.
inline constexpr int kMostTransports = 3;

// What a transport needs to know of a buffer to use a part of it: the
// transport's own to define, valid until the end of the call for which it was
// given. Nobody else looks at it.
using MemoryHandle = const void*;

// A piece of memory that a message comes from or goes to.
struct Memory {
  std::byte* data = nullptr;
  std::uint32_t bytes = 0;
  // Of the buffer of which it is a part, for the connection that gets it.
  MemoryHandle handle = nullptr;
  // Still to be multiplied by Operation::prescale where it is read.
  bool unscaled = false;
  bool on_device = false;  // a device's, not the host's
};

// One piece of it, or several, in order.
class Pieces : public std::span<const Memory> {
 public:
  // Outlives this object.
  Pieces(const Memory& one) : span(&one, 1) {}  // NOLINT
  template <std::size_t kCount>
  Pieces(const std::array<Memory, kCount>& pieces) : span(pieces) {}  // NOLINT
  Pieces(std::span<const Memory> pieces) : span(pieces) {}            // NOLINT
};

// The user's memory that a call reads, or (`written`) reads and writes.
struct UserMemory {
  const void* data = nullptr;
  std::size_t bytes = 0;
  bool written = false;
  // Messages that carry it are at least so long, but for the last.
  std::uint64_t message_bytes = 0;
};

// What a transport says of it.
struct Reached {
  Reach reach;
  MemoryHandle handle = nullptr;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_MEMORY_H_
