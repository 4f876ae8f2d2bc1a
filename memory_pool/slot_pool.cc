#include "memory_pool/slot_pool.h"

#include <infiniband/verbs.h>

#include <string>
#include <utility>

#include "memory_pool/registered_memory.h"

namespace ringpipe {

Result<std::unique_ptr<SlotPool>> SlotPool::Create(
    std::shared_ptr<verbs::ProtectionDomain> pd, std::size_t slot_bytes,
    int slots) {
  const std::size_t bytes = slot_bytes * slots;
  auto memory = pd->device()->Allocate(bytes);
  if (!memory.ok()) {
    return memory.status().WithContext(
        std::to_string(slots) + " slots of " + std::to_string(slot_bytes) +
        " bytes (RINGPIPE_SLOTS, RINGPIPE_SUBCHUNK_BYTES lower them)");
  }
  auto region = verbs::MemoryRegion::Register(
      std::move(pd), memory->data(), memory->bytes(), IBV_ACCESS_LOCAL_WRITE,
      /*relaxed=*/true);
  if (!region.ok()) {
    return region.status().WithContext("registering the slots");
  }
  return std::unique_ptr<SlotPool>(new SlotPool(
      std::move(memory).value(), std::move(region).value(), slot_bytes, slots));
}

SlotPool::~SlotPool() {
  ReleaseRegistered(std::move(region_), std::move(memory_));
}

}  // namespace ringpipe
