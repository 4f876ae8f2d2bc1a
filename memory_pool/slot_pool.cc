#include "memory_pool/slot_pool.h"

#include <infiniband/verbs.h>

#include <string>
#include <utility>

namespace ringpipe {

Result<std::unique_ptr<SlotPool>> SlotPool::Create(Rails rails,
                                                   MemorySource& source,
                                                   std::size_t slot_bytes,
                                                   int slots) {
  const std::size_t bytes = slot_bytes * slots;
  auto memory = source.Allocate(bytes);
  if (!memory.ok()) {
    return memory.status().WithContext(
        std::to_string(slots) + " slots of " + std::to_string(slot_bytes) +
        " bytes (RINGPIPE_SLOTS, RINGPIPE_SUBCHUNK_BYTES lower them)");
  }
  auto registration =
      Registration::Create(rails, memory->data(), memory->bytes(),
                           IBV_ACCESS_LOCAL_WRITE, /*relaxed=*/true);
  if (!registration.ok()) {
    return registration.status().WithContext("registering the slots");
  }
  return std::unique_ptr<SlotPool>(new SlotPool(std::move(memory).value(),
                                                std::move(registration).value(),
                                                slot_bytes, slots));
}

SlotPool::~SlotPool() {
  ReleaseRegistered(std::move(registration_), std::move(memory_));
}

}  // namespace ringpipe
