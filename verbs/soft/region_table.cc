#include "verbs/soft/region_table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>

#include <algorithm>
#include <random>
#include <utility>

#include "verbs/soft/keep_or_lose.h"

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

struct CloseFile {
  void operator()(FILE* file) const { fclose(file); }
};

// Up to this many bytes it costs less to touch all pages than to read the list
// of mappings, about 60 us. Larger ranges may never be used as a whole.
constexpr std::uint64_t kMostTouched = 4 << 20;

// Has the kernel touch the pages as if to write to them, as a device that pins
// them would.
bool TouchForWriting(std::uint64_t address, std::uint64_t bytes) {
#ifdef MADV_POPULATE_WRITE
  const std::uint64_t start = address & ~(kPage - 1);
  return bytes <= kMostTouched &&
         madvise(reinterpret_cast<void*>(start), address + bytes - start,
                 MADV_POPULATE_WRITE) == 0;
#else  // before Linux 5.14
  static_cast<void>(address);
  static_cast<void>(bytes);
  return false;
#endif
}

// Whether no page of it is read-only; pages that are not mapped at all are not
// its business.
bool IsWritable(std::uint64_t address, std::uint64_t bytes) {
  if (TouchForWriting(address, bytes)) {
    return true;
  }
  const std::unique_ptr<FILE, CloseFile> maps(fopen("/proc/self/maps", "re"));
  if (maps == nullptr) {
    return true;  // nobody knows
  }
  char line[8192];  // a path is no longer
  while (fgets(line, sizeof line, maps.get()) != nullptr) {
    std::uint64_t begin, end;
    char write;
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*c%c", &begin, &end, &write) !=
        3) {
      continue;
    }
    if (begin >= address + bytes) {
      break;
    }
    if (end > address && write != 'w') {
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
      regions_(std::make_unique<OwnedRegion[]>(kMaxRegions)),
      generations_(std::make_unique<std::uint8_t[]>(kMaxRegions)) {
  // A key of a context that is gone should not fit its successor.
  std::random_device random;
  const auto first = static_cast<std::uint8_t>(random());
  std::fill_n(generations_.get(), kMaxRegions, first);
}

std::uint32_t RegionTable::Register(std::uint32_t pd, void* address,
                                    std::uint64_t bytes, std::uint64_t iova,
                                    std::uint32_t access) {
  const auto start = reinterpret_cast<std::uint64_t>(address);
  if (bytes == 0 || start + bytes < start || iova + bytes < iova ||
      start % kPage != iova % kPage || (access & ~kKnownAccess) != 0 ||
      ((access & kNeedsLocalWrite) != 0 &&
       (access & IBV_ACCESS_LOCAL_WRITE) == 0)) {
    errno = EINVAL;
    return 0;
  }
  const std::uint64_t offset = segment_->OffsetOf(address, bytes);
  if (offset == kPrivateMemory &&
      (!IsMapped(start, bytes) ||
       ((access & IBV_ACCESS_LOCAL_WRITE) != 0 && !IsWritable(start, bytes)))) {
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
  for (OwnedRegion* region :
       {&regions_[index], &segment_->OwnedForWriting().regions[index]}) {
    region->pd = pd;
    region->access = access;
    region->iova = iova;
    region->address = start;
    region->bytes = bytes;
    region->offset = offset;
    region->key.store(key, std::memory_order_release);
  }
  return key;
}

void RegionTable::Revoke(std::uint32_t key) {
  const std::uint32_t index = key >> 8;
  regions_[index].key.store(0, std::memory_order_seq_cst);
  segment_->OwnedForWriting().regions[index].key.store(
      0, std::memory_order_seq_cst);
}

void RegionTable::Restore(std::uint32_t key) {
  const std::uint32_t index = key >> 8;
  regions_[index].key.store(key, std::memory_order_release);
  segment_->OwnedForWriting().regions[index].key.store(
      key, std::memory_order_release);
}

void RegionTable::Release(std::uint32_t key) {
  std::lock_guard lock(mutex_);
  KeepOrLose(unused_, key >> 8);
}

RegionTable::~RegionTable() {
  for (std::uint32_t index = 0; index < used_; ++index) {
    Revoke(index << 8);
  }
}

}  // namespace ringpipe::verbs::soft
