#include "verbs/soft/region_table.h"

#include <errno.h>
#include <sys/mman.h>

#include <algorithm>
#include <random>
#include <utility>

namespace ringpipe::verbs::soft {
namespace {

constexpr std::uint64_t kPage = 4096;

// mincore() fails where a page is not mapped at all.
bool IsMapped(std::uint64_t address, std::uint64_t bytes) {
  constexpr std::uint64_t kStep = 4096 * kPage;
  unsigned char residency[kStep / kPage];
  const std::uint64_t end = address + bytes;
  for (std::uint64_t at = address & ~(kPage - 1); at < end; at += kStep) {
    if (mincore(reinterpret_cast<void*>(at), std::min(kStep, end - at),
                residency) != 0) {
      return false;
    }
  }
  return true;
}

constexpr std::uint32_t kKnownAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
    IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_OPTIONAL_RANGE;
constexpr std::uint32_t kNeedsLocalWrite =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

}  // namespace

RegionTable::RegionTable(std::shared_ptr<Segment> segment)
    : segment_(std::move(segment)),
      regions_(std::make_unique<SharedRegion[]>(kMaxRegions)),
      generations_(std::make_unique<std::uint8_t[]>(kMaxRegions)) {
  // A key of a context that is gone should not fit its successor.
  std::random_device random;
  const auto first = static_cast<std::uint8_t>(random());
  std::fill_n(generations_.get(), kMaxRegions, first);
}

std::uint32_t RegionTable::Register(std::uint32_t pd, void* address,
                                    std::uint64_t bytes, std::uint32_t access) {
  const auto start = reinterpret_cast<std::uint64_t>(address);
  if (bytes == 0 || start + bytes < start || (access & ~kKnownAccess) != 0 ||
      ((access & kNeedsLocalWrite) != 0 &&
       (access & IBV_ACCESS_LOCAL_WRITE) == 0)) {
    errno = EINVAL;
    return 0;
  }
  if (!IsMapped(start, bytes)) {
    errno = EFAULT;
    return 0;
  }
  std::lock_guard lock(mutex_);
  std::uint32_t index;
  if (used_ < kMaxRegions) {
    index = used_++;
  } else if (!unused_.empty()) {
    index = unused_.front();
    unused_.pop_front();
  } else {
    errno = ENOMEM;
    return 0;
  }
  const std::uint32_t key = index << 8 | ++generations_[index];
  for (SharedRegion* region :
       {&regions_[index], &segment_->layout().regions[index]}) {
    region->pd = pd;
    region->access = access;
    region->address = start;
    region->bytes = bytes;
    region->offset = segment_->OffsetOf(address, bytes);
    region->key.store(key, std::memory_order_release);
  }
  return key;
}

void RegionTable::Revoke(std::uint32_t key) {
  const std::uint32_t index = key >> 8;
  regions_[index].key.store(0, std::memory_order_seq_cst);
  segment_->layout().regions[index].key.store(0, std::memory_order_seq_cst);
}

void RegionTable::Restore(std::uint32_t key) {
  const std::uint32_t index = key >> 8;
  regions_[index].key.store(key, std::memory_order_release);
  segment_->layout().regions[index].key.store(key, std::memory_order_release);
}

void RegionTable::Release(std::uint32_t key) {
  std::lock_guard lock(mutex_);
  unused_.push_back(key >> 8);
}

}  // namespace ringpipe::verbs::soft
