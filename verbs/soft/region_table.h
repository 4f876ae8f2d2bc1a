#ifndef RINGPIPE_VERBS_SOFT_REGION_TABLE_H_
#define RINGPIPE_VERBS_SOFT_REGION_TABLE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "verbs/soft/layout.h"
#include "verbs/soft/segment.h"

namespace ringpipe::verbs::soft {

// Where registered memory lies.
struct RegionPlace {
  std::uint64_t address = 0;              // in the owner's address space
  std::uint64_t offset = kPrivateMemory;  // in its segment
};

// Whether `key` grants `access` to [address, address + bytes), as the key names
// it, in protection domain `pd`, by a table of kMaxRegions; then `place` is
// where that lies. Hot path.
inline bool CheckRegion(const OwnedRegion* regions, std::uint32_t key,
                        std::uint32_t pd, std::uint32_t access,
                        std::uint64_t address, std::uint64_t bytes,
                        RegionPlace* place) {
  const OwnedRegion& region = regions[(key >> 8) % kMaxRegions];
  if (key == 0 || region.key.load(std::memory_order_seq_cst) != key ||
      region.pd != pd || (region.access & access) != access) {
    return false;
  }
  const std::uint64_t from = address - region.iova;
  if (address < region.iova || from > region.bytes ||
      bytes > region.bytes - from) {
    return false;
  }
  place->address = region.address + from;
  place->offset =
      region.offset == kPrivateMemory ? kPrivateMemory : region.offset + from;
  return true;
}

// The registered memory of a context: the owner's own table, by which it
// checks lkeys, and its copy in the segment, by which peers check. Thread-safe.
class RegionTable {
 public:
  explicit RegionTable(std::shared_ptr<Segment> segment);
  // Revokes all: peers may still have the segment.
  ~RegionTable();

  // Registers memory that those who name its key find at `iova`. Returns the
  // key, or 0 with errno: EINVAL, EFAULT (not all of it is mapped, or it is to
  // be written to and read-only), ENOMEM.
  std::uint32_t Register(std::uint32_t pd, void* address, std::uint64_t bytes,
                         std::uint64_t iova, std::uint32_t access);

  // The key grants nothing from now on, but those who looked it up before may
  // still be at work. Then either Release, or Restore.
  void Revoke(std::uint32_t key);
  void Restore(std::uint32_t key);
  void Release(std::uint32_t key);

  const OwnedRegion* regions() const { return regions_.get(); }

 private:
  std::shared_ptr<Segment> segment_;
  std::unique_ptr<OwnedRegion[]> regions_;
  std::mutex mutex_;
  std::uint32_t used_ = 1;            // slots ever used; 0 is never
  std::deque<std::uint32_t> unused_;  // first in, first out: late reuse
  std::unique_ptr<std::uint8_t[]> generations_;
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_REGION_TABLE_H_
