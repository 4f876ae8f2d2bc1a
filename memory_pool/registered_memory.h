#ifndef RINGPIPE_MEMORY_POOL_REGISTERED_MEMORY_H_
#define RINGPIPE_MEMORY_POOL_REGISTERED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/memory_source.h"
#include "base/status.h"
#include "memory_pool/registration.h"

namespace ringpipe {

// The users' buffers that are registered once: the pipeline sends from them and
// receives into them without copying. Thread-safe.
class RegisteredMemory {
 public:
  using ProtectionDomains =
      std::vector<std::shared_ptr<verbs::ProtectionDomain>>;

  // `source` is whose memory Allocate gives.
  RegisteredMemory(ProtectionDomains rails,
                   std::shared_ptr<MemorySource> source)
      : rails_(std::move(rails)), source_(std::move(source)) {}

  // New memory of `source` (in the manner of ncclMemAlloc): zeroed,
  // page-aligned. kInvalidArgument for 0 bytes; kResourceExhausted.
  Result<void*> Allocate(std::size_t bytes);

  // kInvalidArgument for memory that Allocate did not return.
  Status Free(void* memory);

  // The user's own memory (in the manner of ncclCommRegister). Memory that may
  // only be read is taken too: it can be sent from. kInvalidArgument for 0
  // bytes, for nullptr, and where a part of it is registered already;
  // kResourceExhausted past the limit of locked memory, with advice.
  Status Register(void* memory, std::size_t bytes);

  // kInvalidArgument for memory that Register was not given.
  Status Deregister(void* memory);

  struct Found {
    RailKeys lkeys = {};
    bool writable = false;
  };
  // The buffer that holds all of [address, address + bytes), if there is one.
  std::optional<Found> Find(const void* address, std::size_t bytes) const;

 private:
  struct Buffer {
    Allocation memory;  // empty where the user allocated it
    std::size_t bytes = 0;
    bool writable = true;
    Registration registration;
    bool ready = false;  // registered
    ~Buffer();
  };

  Status Remove(void* memory, bool allocated, const char* call);
  bool Overlaps(const std::byte* begin, std::size_t bytes) const;

  const ProtectionDomains rails_;
  const std::shared_ptr<MemorySource> source_;
  mutable std::mutex mutex_;
  std::map<const std::byte*, Buffer> buffers_;  // by address; guarded by mutex_
};

}  // namespace ringpipe

#endif  // RINGPIPE_MEMORY_POOL_REGISTERED_MEMORY_H_
