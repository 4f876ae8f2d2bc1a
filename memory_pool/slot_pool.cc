#include "memory_pool/slot_pool.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

namespace ringpipe {

Result<std::unique_ptr<SlotPool>> SlotPool::Create(ProtectionDomains domains,
                                                   MemorySource& source,
                                                   std::size_t slot_bytes,
                                                   int slots) {
  // Whole cache lines.
  const std::size_t bytes =
      std::max<std::size_t>((slot_bytes + 63) / 64 * 64, 64);
  std::unique_ptr<SlotPool> pool(new SlotPool(domains, source, bytes, slots));
  if (!domains.empty()) {
    RINGPIPE_RETURN_IF_ERROR(pool->UseLong());
  }
  return pool;
}

Status SlotPool::Allocate(Kind& kind) {
  const std::uint64_t slots = list_.counters().slots;
  auto memory = source_->Allocate(kind.bytes * slots);
  if (!memory.ok()) {
    return memory.status().WithContext(
        std::to_string(slots) + " slots of " + std::to_string(kind.bytes) +
        " bytes (RINGPIPE_SLOTS, RINGPIPE_SUBCHUNK_BYTES lower them)");
  }
  auto registration =
      Registration::Create(domains_, memory->data(), memory->bytes(),
                           IBV_ACCESS_LOCAL_WRITE, /*relaxed=*/true);
  if (!registration.ok()) {
    return registration.status().WithContext("registering the slots");
  }
  kind.memory = std::move(memory).value();
  kind.registration = std::move(registration).value();
  return Status::Ok();
}

// Not Allocation::Keep, which lets it go with its source.
void SlotPool::KeepLongForEver() {
  static std::atomic<Kept*> all = nullptr;
  kept_->memory = std::move(long_.memory);
  kept_->next = all.load();
  Kept* const own = kept_.release();
  while (!all.compare_exchange_weak(own->next, own)) {
  }
}

SlotPool::~SlotPool() {
  for (Kind* const kind : {&short_, &long_}) {
    ReleaseRegistered(std::move(kind->registration), std::move(kind->memory));
  }
}

}  // namespace ringpipe
