#ifndef RINGPIPE_VERBS_MEMORY_REGION_H_
#define RINGPIPE_VERBS_MEMORY_REGION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/status.h"
#include "verbs/device.h"
#include "verbs/memlock.h"  // CheckMemlock

namespace ringpipe::verbs {

// RAII over ibv_pd. Thread-safe.
class ProtectionDomain {
 public:
  // kResourceExhausted past the device's limit, with the limit.
  static Result<std::shared_ptr<ProtectionDomain>> Create(
      std::shared_ptr<Device> device);
  ~ProtectionDomain();
  ProtectionDomain(const ProtectionDomain&) = delete;
  ProtectionDomain& operator=(const ProtectionDomain&) = delete;

  ibv_pd* get() const { return pd_; }
  const std::shared_ptr<Device>& device() const { return device_; }

 private:
  explicit ProtectionDomain(std::shared_ptr<Device> device)
      : device_(std::move(device)) {}

  std::shared_ptr<Device> device_;
  ibv_pd* pd_ = nullptr;
};

// RAII over ibv_mr: memory that the device may use, from Register to the
// destructor. Does not own the memory. Move-only; one thread at a time.
class MemoryRegion {
 public:
  // `access` is of ibv_access_flags; 0: local read only. kInvalidArgument for
  // no memory. On a device that pins, RLIMIT_MEMLOCK is checked first:
  // kResourceExhausted says what is needed and how to raise it.
  //
  // `relaxed`: the device's writes into the memory may overtake each other on
  // their way (PCIe relaxed ordering), where library, kernel and device offer
  // that; elsewhere it changes nothing. It raises the bandwidth of hosts whose
  // root complex orders writes slowly. For memory that is read only after the
  // completion of what was written there, which still comes last: data. Not for
  // memory that is watched for a change, such as a credit word: an old value
  // could overtake a new one, and the word would go backwards.
  static Result<MemoryRegion> Register(std::shared_ptr<ProtectionDomain> pd,
                                       const void* address, std::size_t bytes,
                                       int access, bool relaxed = false);
  MemoryRegion() = default;
  MemoryRegion(MemoryRegion&& other) noexcept;
  MemoryRegion& operator=(MemoryRegion&& other) noexcept;
  ~MemoryRegion() {
    if (mr_ != nullptr) {
      static_cast<void>(Deregister());
    }
  }

  // Deregisters now. An error (the device still uses the memory) leaves it
  // registered for good: the memory must then never be reused. Ok where nothing
  // is registered.
  Status Deregister();

  // Only where it is registered.
  std::uint32_t lkey() const { return mr_->lkey; }
  std::uint32_t rkey() const { return mr_->rkey; }
  explicit operator bool() const { return mr_ != nullptr; }

 private:
  MemoryRegion(std::shared_ptr<ProtectionDomain> pd, ibv_mr* mr)
      : pd_(std::move(pd)), mr_(mr) {}

  std::shared_ptr<ProtectionDomain> pd_;
  ibv_mr* mr_ = nullptr;
};

}  // namespace ringpipe::verbs

#endif  // RINGPIPE_VERBS_MEMORY_REGION_H_
