#ifndef RINGPIPE_MEMORY_POOL_SLOT_POOL_H_
#define RINGPIPE_MEMORY_POOL_SLOT_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "memory_pool/registration.h"
#include "memory_pool/slot_list.h"
#include "verbs/device.h"

namespace ringpipe {

// Registered memory cut into slots of one size, allocated and registered once:
//
//     | slot 0 | slot 1 | ... | slot n-1 |      one allocation
//
// Acquire and release (list()) neither allocate nor lock; none free is
// back-pressure, never an error. One thread at a time.
class SlotPool {
 public:
  // `slot_bytes` is a multiple of 64; the memory is `source`'s.
  // kResourceExhausted where memory, or the permission to pin it, is short.
  static Result<std::unique_ptr<SlotPool>> Create(Rails rails,
                                                  MemorySource& source,
                                                  std::size_t slot_bytes,
                                                  int slots);

  ~SlotPool();
  SlotPool(const SlotPool&) = delete;
  SlotPool& operator=(const SlotPool&) = delete;

  SlotList& list() { return list_; }
  const SlotList& list() const { return list_; }
  std::byte* data(int slot) const {
    return memory_.data() + slot * slot_bytes_;
  }
  std::size_t slot_bytes() const { return slot_bytes_; }
  std::byte* memory() const { return memory_.data(); }
  std::size_t memory_bytes() const { return memory_.bytes(); }
  const RailKeys& lkeys() const { return registration_.lkeys(); }

 private:
  SlotPool(Allocation memory, Registration registration, std::size_t slot_bytes,
           int slots)
      : memory_(std::move(memory)),
        registration_(std::move(registration)),
        slot_bytes_(slot_bytes),
        list_(slots) {}

  Allocation memory_;
  Registration registration_;
  std::size_t slot_bytes_;
  SlotList list_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_MEMORY_POOL_SLOT_POOL_H_
