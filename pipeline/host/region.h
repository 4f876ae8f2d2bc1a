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
// memory, mapped once in each process that knows it.
//
//   | header | what Allocate gives out | address space to grow into |
//            file's end, of which limit_ is what is known ^
//
// The mapping is longer than the file, so that what the owner allocates later
// appears at the peers by itself. Its pages exist before they are given out,
// and nobody can shorten the file, so that no access raises SIGBUS. Children of
// fork() do not have it; there nothing may be called but the destructor and
// Free, which do nothing.
//
// Thread-safe.
class Region {
 public:
  // A new one, whose first `header_bytes` are zero and for the layout of
  // others. kResourceExhausted where there is no memory for it.
  static Result<std::shared_ptr<Region>> Create(std::size_t header_bytes);

  // A peer's, by the descriptor that it sent. The same object for everybody in
  // this process, the owner included. kInvalidArgument for a file that is no
  // region, or one whose header is shorter; kResourceExhausted where it cannot
  // be mapped.
  static Result<std::shared_ptr<Region>> Attach(FileDescriptor file,
                                                std::size_t header_bytes);

  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  std::byte* header() const { return mapping_.data(); }
  // Whole pages: as much as was asked for or more.
  std::size_t header_bytes() const { return header_bytes_; }

  // What to send to a peer. Owner only.
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
                                                     : std::nullopt;
  }

  // The range at `offset`; nullptr where the file has none, or where this
  // process has less address space for it than the owner.
  std::byte* At(std::uint64_t offset, std::uint64_t bytes) {
    const std::uint64_t limit = limit_.load(std::memory_order_relaxed);
    if (bytes <= limit && offset <= limit - bytes) [[likely]] {
      return header() + offset;
    }
    return AtEnd(offset, bytes);
  }

 private:
  enum class Role { kOwner, kPeer };
  using Registry = MappingRegistry<FileIdentity, Region>;

  static Registry& ProcessRegistry();
  static Result<std::shared_ptr<Region>> Map(Role role, FileDescriptor file,
                                             std::size_t header_bytes);

  Region(Role role, const FileIdentity& identity, FileDescriptor file,
         SharedMapping mapping, std::size_t header_bytes);

  Status TakeBackPage(std::uint64_t offset);
  void ClearTakenBack(std::uint64_t offset, std::uint64_t length);
  std::byte* AtEnd(std::uint64_t offset, std::uint64_t bytes);
  void RaiseLimit(std::uint64_t bytes);

  const Role role_;
  const FileIdentity identity_;
  const FileDescriptor file_;
  const SharedMapping mapping_;
  const std::size_t header_bytes_;
  // No more than the file's length nor the mapping's; only grows. The owner's
  // is what it has allocated, whatever length a peer gave the file.
  std::atomic<std::uint64_t> limit_;
  std::mutex mutex_;
  // Guarded by mutex_; the owner's.
  RangeAllocator ranges_;
  std::set<std::uint64_t> taken_back_;  // pages
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_HOST_REGION_H_
