// Memory registered with every rail that a communicator uses.
#ifndef RINGPIPE_MEMORY_POOL_REGISTRATION_H_
#define RINGPIPE_MEMORY_POOL_REGISTRATION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "verbs/memory_region.h"

namespace ringpipe {

// A rail is one port of one RDMA device; a communicator numbers those that it
// uses from 0. The software device is a rail too.
inline constexpr int kMaxRails = 8;
// Of a communicator, one for each rail.
using ProtectionDomains =
    std::span<const std::shared_ptr<verbs::ProtectionDomain>>;

// A key of one piece of memory for each rail.
using RailKeys = std::array<std::uint32_t, kMaxRails>;

// RAII over the memory regions, one for each rail. Does not own the memory.
// Move-only; one thread at a time.
class Registration {
 public:
  Registration() = default;

  // `access` is of ibv_access_flags. Data may be placed in any order
  // (`relaxed`, where a device offers that) in memory that nobody looks at
  // before its completion. On failure nothing stays registered.
  static Result<Registration> Create(ProtectionDomains domains,
                                     const void* address, std::size_t bytes,
                                     int access, bool relaxed);

  // An error (a device still uses the memory) leaves it registered there for
  // good: the memory must then never be reused.
  Status Release();

  const RailKeys& lkeys() const { return lkeys_; }
  std::uint32_t rkey(int rail) const { return regions_[rail].rkey(); }
  explicit operator bool() const { return static_cast<bool>(regions_[0]); }

 private:
  std::array<verbs::MemoryRegion, kMaxRails> regions_;
  RailKeys lkeys_ = {};
};

// Releases and frees, in this order. Where a device will not let go of the
// memory, nobody gets it before the device is closed.
void ReleaseRegistered(Registration registration, Allocation memory);

}  // namespace ringpipe

#endif  // RINGPIPE_MEMORY_POOL_REGISTRATION_H_
