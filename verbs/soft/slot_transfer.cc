#include "verbs/soft/slot_transfer.h"

#include <string.h>

#include <algorithm>

#include "verbs/soft/atomic_operation.h"

namespace ringpipe::verbs::soft {
namespace {

SlotDescriptor::Kind KindOf(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_READ:
      return SlotDescriptor::kRead;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return SlotDescriptor::kCompareSwap;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return SlotDescriptor::kFetchAdd;
    default:
      return SlotDescriptor::kWrite;
  }
}

bool IsAllowed(const SlotDescriptor& slot, const SlotRights& rights) {
  const bool enabled = (rights.access & slot.access) != 0;
  switch (slot.kind) {
    case SlotDescriptor::kWrite:
      return slot.access == IBV_ACCESS_LOCAL_WRITE ||
             (slot.access == IBV_ACCESS_REMOTE_WRITE && enabled);
    case SlotDescriptor::kRead:
      return slot.access == IBV_ACCESS_REMOTE_READ && enabled;
    case SlotDescriptor::kCompareSwap:
    case SlotDescriptor::kFetchAdd:
      return slot.access == IBV_ACCESS_REMOTE_ATOMIC && enabled &&
             slot.bytes == sizeof(std::uint64_t) &&
             slot.address % sizeof(std::uint64_t) == 0;
    default:
      return false;
  }
}

}  // namespace

// --- Who executes ------------------------------------------------------------

Step SlotTransfer::Run(const Operation& operation,
                       std::span<const RemoteRange> remote, bool* wake) {
  const SlotDescriptor::Kind kind = KindOf(operation.opcode);
  if (!active_) {
    active_ = true;
    refused_ = false;
    taken_ = filled_ = shared_.slots_filled.load(std::memory_order_relaxed);
    bytes_filled_ = bytes_taken_ = 0;
  }
  Take(operation, kind == SlotDescriptor::kWrite);
  *wake = Fill(operation, remote, kind);
  if (bytes_taken_ < operation.bytes) {
    return Step::kInFlight;
  }
  active_ = false;
  return refused_ ? Step::kFailed : Step::kDone;
}

void SlotTransfer::Take(const Operation& operation, bool is_write) {
  const std::uint32_t done = owned_.slots_done.load(std::memory_order_acquire);
  RangeCursor cursor(operation.local);
  cursor.Skip(bytes_taken_);
  while (static_cast<std::int32_t>(done - taken_) > 0 && taken_ != filled_) {
    const std::uint32_t bytes = slot_bytes_[taken_ % kSlots];
    refused_ = refused_ || owned_.slot_refused[taken_ % kSlots].load(
                               std::memory_order_relaxed) != 0;
    if (!is_write && !refused_) {
      cursor.CopyFrom(slots_[taken_ % kSlots], bytes);
    }
    bytes_taken_ += bytes;
    ++taken_;
  }
}

bool SlotTransfer::Fill(const Operation& operation,
                        std::span<const RemoteRange> remote,
                        SlotDescriptor::Kind kind) {
  RangeCursor cursor(operation.local);
  cursor.Skip(bytes_filled_);
  std::uint64_t before = 0;  // bytes of the ranges before this one
  bool filled_some = false;
  for (const RemoteRange& range : remote) {
    while (bytes_filled_ < before + range.bytes) {
      // The peer may not have served those yet that were abandoned.
      const std::uint32_t done =
          owned_.slots_done.load(std::memory_order_acquire);
      if (filled_ - taken_ >= kSlots || filled_ - done >= kSlots) {
        return filled_some;
      }
      const std::uint64_t offset = bytes_filled_ - before;
      const auto bytes = static_cast<std::uint32_t>(
          std::min<std::uint64_t>(kSlotBytes, range.bytes - offset));
      const std::uint32_t slot = filled_ % kSlots;
      if (kind == SlotDescriptor::kWrite) {
        cursor.CopyTo(slots_[slot], bytes);
      }
      shared_.slots[slot] = {.kind = kind,
                             .key = range.key,
                             .address = range.address + offset,
                             .access = range.access,
                             .bytes = bytes,
                             .compare_add = operation.compare_add,
                             .swap = operation.swap};
      slot_bytes_[slot] = bytes;
      shared_.slots_filled.store(++filled_, std::memory_order_release);
      bytes_filled_ += bytes;
      filled_some = true;
    }
    before += range.bytes;
  }
  return filled_some;
}

// --- The owner ---------------------------------------------------------------

SlotOutcome ServeSlot(SharedLayout& layout, const SlotDescriptor& slot,
                      std::byte* data, const SlotRights& rights) {
  const std::uint32_t pd =
      slot.access == IBV_ACCESS_LOCAL_WRITE ? rights.receive_pd : rights.pd;
  RegionPlace place;
  if (slot.bytes > kSlotBytes || !IsAllowed(slot, rights) ||
      !CheckRegion(rights.regions, slot.key, pd, slot.access, slot.address,
                   slot.bytes, &place)) {
    return SlotOutcome::kRefused;
  }
  auto* const memory = reinterpret_cast<std::byte*>(place.address);
  if (slot.kind == SlotDescriptor::kWrite) {
    CopyBytes(memory, data, slot.bytes);
  } else if (slot.kind == SlotDescriptor::kRead) {
    CopyBytes(data, memory, slot.bytes);
  } else {
    const AtomicOperation operation = {slot.kind == SlotDescriptor::kFetchAdd
                                           ? IBV_WR_ATOMIC_FETCH_AND_ADD
                                           : IBV_WR_ATOMIC_CMP_AND_SWP,
                                       slot.compare_add, slot.swap};
    std::uint64_t old;
    if (!ExecuteAtomicAsOwner(layout, place, operation, &old)) {
      return SlotOutcome::kBusy;
    }
    memcpy(data, &old, sizeof old);
  }
  return SlotOutcome::kDone;
}

}  // namespace ringpipe::verbs::soft
