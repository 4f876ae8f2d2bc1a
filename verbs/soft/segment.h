#ifndef RINGPIPE_VERBS_SOFT_SEGMENT_H_
#define RINGPIPE_VERBS_SOFT_SEGMENT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "base/status.h"
#include "verbs/soft/file_descriptor.h"
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

  // What to send to a peer.
  int owned_fd() const { return owned_file_.get(); }
  int shared_fd() const { return shared_file_.get(); }

  const OwnedLayout& owned() const { return *owned_; }
  SharedLayout& shared() { return *reinterpret_cast<SharedLayout*>(base_); }
  // Owner only.
  OwnedLayout& OwnedForWriting() { return *owned_; }

  // Zeroed pages, nullptr if there are no more. Owner only.
  void* Allocate(std::size_t bytes);
  // Gives the range, which Allocate returned for `bytes`, back to the system.
  void Free(void* address, std::size_t bytes);

  // Where [address, address + bytes) lies; kPrivateMemory: not in the data.
  std::uint64_t OffsetOf(const void* address, std::uint64_t bytes) const;

  // The range of the data at `offset`; nullptr where the file has none.
  std::byte* At(std::uint64_t offset, std::uint64_t bytes);

 private:
  enum class Role { kOwner, kPeer };

  Segment(FileDescriptor owned_file, FileDescriptor shared_file,
          OwnedLayout* owned, std::byte* base);

  static Result<std::shared_ptr<Segment>> Map(Role role, FileDescriptor owned,
                                              FileDescriptor shared);

  FileDescriptor owned_file_;
  FileDescriptor shared_file_;
  OwnedLayout* const owned_;
  std::byte* const base_;
  // The second file's length when last asked; files only grow (sealed).
  std::atomic<std::uint64_t> file_bytes_{0};
  std::mutex mutex_;       // for what follows, which only the owner uses
  std::uint64_t end_ = 0;  // of what was ever allocated
  std::map<std::uint64_t, std::uint64_t> free_;  // offset to bytes, coalesced
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_SEGMENT_H_
