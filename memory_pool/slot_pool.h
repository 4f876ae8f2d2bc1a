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

// Registered memory cut into slots of one size:
//
//     | slot 0 | slot 1 | ... | slot n-1 |      one allocation
//
// With rails it is allocated and registered once, before a user can have taken
// what a device offers. Without, where ranks of a host may be many, there are
// short slots and long ones, as many of each: a call uses one kind, which is
// allocated when it is first used, so that a job that sends short messages
// alone never has the memory for long ones.
//
// Acquire and release (list()) neither allocate nor lock; none free is
// back-pressure, never an error. One thread at a time.
class SlotPool {
 public:
  // Of a short slot.
  static constexpr std::size_t kShortBytes = 4096;

  // A long slot has room for `slot_bytes`; the memory is `source`'s. `domains`
  // outlive the pool. kResourceExhausted where memory, or
  // the permission to pin it, is short.
  static Result<std::unique_ptr<SlotPool>> Create(ProtectionDomains domains,
                                                  MemorySource& source,
                                                  std::size_t slot_bytes,
                                                  int slots);
  ~SlotPool();
  SlotPool(const SlotPool&) = delete;
  SlotPool& operator=(const SlotPool&) = delete;

  // From now on each slot has room for `bytes`, which are no more than those of
  // a long slot. Not while one is acquired. kResourceExhausted where memory is
  // short; only at the first use of a kind.
  Status Use(std::size_t bytes) {
    const bool is_short =
        domains_.empty() && bytes <= kShortBytes && kShortBytes < long_.bytes;
    used_ = is_short ? &short_ : &long_;
    return used_->memory.data() != nullptr ? Status::Ok() : Allocate(*used_);
  }
  Status UseLong() { return Use(long_.bytes); }

  SlotList& list() { return list_; }
  const SlotList& list() const { return list_; }

  // Of the slots in use.
  std::byte* data(int slot) const {
    return used_->memory.data() + slot * used_->bytes;
  }
  std::size_t slot_bytes() const { return used_->bytes; }
  // Whether it is in one of them.
  bool Holds(const std::byte* data) const {
    return data >= used_->memory.data() &&
           data < used_->memory.data() + used_->memory.bytes();
  }
  const RailKeys& lkeys() const { return used_->registration.lkeys(); }

  // Of the long slots; nullptr: they were never used.
  std::byte* memory() const { return long_.memory.data(); }
  std::size_t memory_bytes() const { return long_.memory.bytes(); }
  // The memory of the long slots, and its source, live as long as the process:
  // a device might still use it. Once; it takes no memory.
  void KeepLongForEver();

 private:
  struct Kind {
    std::size_t bytes;  // of a slot
    Allocation memory;
    Registration registration;
  };

  // In a list, so that who looks for leaks finds it.
  struct Kept {
    Allocation memory;
    Kept* next = nullptr;
  };

  SlotPool(ProtectionDomains domains, MemorySource& source,
           std::size_t slot_bytes, int slots)
      : domains_(domains),
        source_(source.shared_from_this()),
        long_{slot_bytes, {}, {}},
        list_(slots) {}

  Status Allocate(Kind& kind);

  const ProtectionDomains domains_;
  const std::shared_ptr<MemorySource> source_;
  Kind short_{kShortBytes, {}, {}};
  Kind long_;
  Kind* used_ = &long_;
  std::unique_ptr<Kept> kept_ = std::make_unique<Kept>();
  SlotList list_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_MEMORY_POOL_SLOT_POOL_H_
