#ifndef RINGPIPE_VERBS_SOFT_SEGMENT_H_
#define RINGPIPE_VERBS_SOFT_SEGMENT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "base/file_descriptor.h"
#include "base/mapping_registry.h"
#include "base/range_allocator.h"
#include "base/shared_file.h"
#include "base/shared_mapping.h"
#include "base/status.h"
#include "verbs/soft/layout.h"

namespace ringpipe::verbs::soft {

// The memory that a context shares with its peers: two memfds, mapped once in
// each process that knows them. Peers cannot map the first to write to it. The
// mapping of the second is longer than the file, so that what the owner
// allocates later appears in it by itself. Thread-safe.
class Segment {
 public:
  // A new one, zeroed, with no data.
  static Result<std::shared_ptr<Segment>> Create();

  // A peer's, by the descriptors that it sent. The same object for everybody in
  // this process, the owner included. kInvalidArgument for files that are not a
  // segment.
  static Result<std::shared_ptr<Segment>> Attach(FileDescriptor owned,
                                                 FileDescriptor shared);

  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // What to send to a peer. Owner only.
  int owned_fd() const { return owned_file_.get(); }
  int shared_fd() const { return shared_file_.get(); }

  const OwnedLayout& owned() const {
    return *reinterpret_cast<const OwnedLayout*>(owned_.data());
  }
  SharedLayout& shared() {
    return *reinterpret_cast<SharedLayout*>(shared_.data());
  }
  // Owner only.
  OwnedLayout& OwnedForWriting() {
    return *reinterpret_cast<OwnedLayout*>(owned_.data());
  }

  // Zeroed pages, nullptr if there are no more. Owner only.
  void* Allocate(std::size_t bytes);
  // Gives the range, which Allocate returned for `bytes`, back to the system;
  // nothing in a child of fork(), whose parent has it.
  void Free(void* address, std::size_t bytes);

  // Where [address, address + bytes) lies; kPrivateMemory: not in the data.
  std::uint64_t OffsetOf(const void* address, std::uint64_t bytes) const;

  // Whether so much is mapped here: less than the owner has where this
  // process's address space is limited and the owner's is not.
  bool Maps(std::uint64_t offset, std::uint64_t bytes) const {
    return offset <= shared_.bytes() && bytes <= shared_.bytes() - offset;
  }
  // The range of the data at `offset`; nullptr where the file has none.
  std::byte* At(std::uint64_t offset, std::uint64_t bytes);

 private:
  enum class Role { kOwner, kPeer };
  // Of both files.
  using Identity = std::pair<FileIdentity, FileIdentity>;
  using Registry = MappingRegistry<Identity, Segment>;

  Segment(const Identity& identity, SharedMapping owned, SharedMapping shared);

  static Registry& ProcessRegistry();

  static Result<std::shared_ptr<Segment>> Map(Role role, FileDescriptor owned,
                                              FileDescriptor shared);

  const Identity identity_;
  const SharedMapping owned_;
  const SharedMapping shared_;
  FileDescriptor owned_file_;  // the owner's
  FileDescriptor shared_file_;
  // The second file's length when last asked; files only grow (sealed).
  std::atomic<std::uint64_t> file_bytes_{0};
  std::mutex mutex_;            // for what follows, which only the owner uses
  std::uint64_t grown_to_ = 0;  // what the second file's length was made
  RangeAllocator ranges_;
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_SEGMENT_H_
