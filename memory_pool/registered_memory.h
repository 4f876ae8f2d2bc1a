#ifndef RINGPIPE_MEMORY_POOL_REGISTERED_MEMORY_H_
#define RINGPIPE_MEMORY_POOL_REGISTERED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "base/status.h"
#include "verbs/device.h"
#include "verbs/memory_region.h"

namespace ringpipe {

// Buffers for users, allocated where the device likes them and registered once
// (in the manner of ncclMemAlloc): the pipeline sends from them without
// copying, and peers on the same host can reach them. Thread-safe.
class RegisteredMemory {
 public:
  explicit RegisteredMemory(std::shared_ptr<verbs::ProtectionDomain> pd)
      : pd_(std::move(pd)) {}

  // Zeroed, page-aligned. kInvalidArgument for 0 bytes; kResourceExhausted.
  Result<void*> Allocate(std::size_t bytes);

  // kInvalidArgument for memory that Allocate did not return.
  Status Free(void* memory);

  // The lkey of the buffer that holds all of [address, address + bytes).
  std::optional<std::uint32_t> Find(const void* address,
                                    std::size_t bytes) const;

 private:
  struct Buffer {
    verbs::Allocation memory;
    verbs::MemoryRegion region;
    ~Buffer();
  };

  std::shared_ptr<verbs::ProtectionDomain> pd_;
  mutable std::mutex mutex_;
  std::map<const std::byte*, Buffer> buffers_;  // by address; guarded by mutex_
};

// Deregisters and frees, in this order. Where the device will not let go of the
// memory, both are kept for good: freed memory that a device or a peer may
// still write is worse than lost memory.
void ReleaseRegistered(verbs::MemoryRegion region, verbs::Allocation memory);

}  // namespace ringpipe

#endif  // RINGPIPE_MEMORY_POOL_REGISTERED_MEMORY_H_
