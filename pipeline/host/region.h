#ifndef RINGPIPE_PIPELINE_HOST_REGION_H_
#define RINGPIPE_PIPELINE_HOST_REGION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include "base/file_descriptor.h"
#include "base/mapping_registry.h"
#include "base/range_allocator.h"
#include "base/shared_file.h"
#include "base/shared_mapping.h"
#include "base/status.h"

namespace ringpipe {

// The one memory that a rank shares with the ranks of its host: a file in
// memory, mapped in each process that knows it.
//
//   | header | what Allocate gives out first | what it gives out when that |
//   |        |                               | is not enough               |
//   |------- mapped from the beginning ------|---- mapped when needed -----|
//
// The file has its whole length from the beginning, so that what the owner
// allocates later appears at the peers by itself, who need no descriptor of it.
// Its pages exist before they are given out, and nobody can shorten the file,
// so that no access raises SIGBUS. Most communicators need little: their peers
// have address space for that, and not for all that it might become. Children
// of fork() do not have it; there nothing may be called but the destructor and
// Free, which do nothing.
//
// Thread-safe.
class Region {
 public:
  // A new one, whose first `header_bytes` are zero and for the layout of
  // others. kResourceExhausted where there is no memory for it.
  static Result<std::shared_ptr<Region>> Create(std::size_t header_bytes);

  // A peer's, by the descriptor that it sent, which is closed. The same object
  // for everybody in this process, the owner included. kInvalidArgument for a
  // file that is no region, or one whose header is shorter; kResourceExhausted
  // where it cannot be mapped.
  static Result<std::shared_ptr<Region>> Attach(FileDescriptor file,
                                                std::size_t header_bytes);

  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  std::byte* header() const { return near_.data(); }
  // Whole pages: as much as was asked for or more.
  std::size_t header_bytes() const { return header_bytes_; }

  // What to send to a peer. Owner only; -1: it is a peer's.
  int fd() const { return file_.get(); }

  // Zeroed pages; from 2 MiB on aligned to that, and huge where the system
  // gives such. kResourceExhausted where there are no more. Owner only.
  Result<std::byte*> Allocate(std::size_t bytes);
  // Gives the range, which Allocate returned for `bytes`, back to the system.
  // Whoever still reads it reads zero.
  void Free(std::byte* data, std::size_t bytes);

  // Takes the range from the peers, who may be writing to it: from when this
  // returns, nothing that they write appears here. What other threads of this
  // process store meanwhile, in the range or beside it, is not lost. Whole
  // pages, for good: Free does not bring them back to the peers.
  // kResourceExhausted where there is no memory for it; then they may still
  // write. Owner only; not while a peer in this process uses the range.
  Status TakeBack(std::byte* data, std::size_t bytes);

  // Where [data, data + bytes) lies; nullopt: not wholly in the memory that is
  // there. Gaps, such as what was freed, count as memory.
  std::optional<std::uint64_t> OffsetOf(const void* data,
                                        std::uint64_t bytes) const {
    const std::uint64_t offset = reinterpret_cast<std::uintptr_t>(data) -
                                 reinterpret_cast<std::uintptr_t>(header());
    const std::uint64_t limit = limit_.load(std::memory_order_relaxed);
    // Memory before the region has a very large offset.
    return bytes <= limit && offset <= limit - bytes ? std::optional(offset)
                                                     : FarOffsetOf(data, bytes);
  }

  // The range at `offset`; nullptr where the file has none, or the owner has
  // not allocated it, or where this process has no address space for it.
  std::byte* At(std::uint64_t offset, std::uint64_t bytes) {
    const std::uint64_t limit = limit_.load(std::memory_order_relaxed);
    if (bytes <= limit && offset <= limit - bytes) [[likely]] {
      return header() + offset;
    }
    return FarAt(offset, bytes);
  }

 private:
  enum class Role { kOwner, kPeer };
  using Registry = MappingRegistry<FileIdentity, Region>;

  static Registry& ProcessRegistry();
  static Result<std::shared_ptr<Region>> Map(Role role, FileDescriptor file,
                                             std::size_t header_bytes);

  Region(Role role, const FileIdentity& identity, FileDescriptor file,
         SharedMapping near, std::size_t header_bytes,
         std::uint64_t file_bytes);

  std::byte* AddressOf(std::uint64_t offset) const;
  std::optional<std::uint64_t> FarOffsetOf(const void* data,
                                           std::uint64_t bytes) const;
  std::byte* FarAt(std::uint64_t offset, std::uint64_t bytes);
  bool MapFar();
  std::optional<std::uint64_t> Take(std::size_t bytes);
  void Give(std::uint64_t offset, std::size_t bytes);
  bool TakeBackPage(std::uint64_t offset);
  void ClearTakenBack(std::uint64_t offset, std::uint64_t length);

  const FileIdentity identity_;
  const FileDescriptor file_;  // the owner's
  const SharedMapping near_;
  const std::size_t header_bytes_;
  // What may be accessed of what is mapped from the beginning, and of the
  // whole. At a peer no more than the file has; the owner's are what it has
  // allocated, whatever length a peer gave the file, and only grow.
  std::atomic<std::uint64_t> limit_;
  std::atomic<std::uint64_t> far_limit_;
  // The begin of a mapping of the whole file, of which only what near_ does not
  // have is used; nullptr: not mapped yet.
  std::atomic<std::byte*> far_data_ = nullptr;
  std::mutex mutex_;
  // Guarded by mutex_; all but the first are the owner's.
  std::optional<SharedMapping> far_;
  RangeAllocator ranges_;
  RangeAllocator far_ranges_;
  std::set<std::uint64_t> taken_back_;  // pages
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_HOST_REGION_H_
