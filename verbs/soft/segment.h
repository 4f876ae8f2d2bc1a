#ifndef RINGPIPE_VERBS_SOFT_SEGMENT_H_
#define RINGPIPE_VERBS_SOFT_SEGMENT_H_

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/file_descriptor.h"
#include "base/status.h"
#include "verbs/soft/layout.h"

namespace ringpipe::verbs::soft {

// A file's beginning, mapped for all who map it. Unmaps itself. Move-only.
class Mapping {
 public:
  Mapping() = default;
  // None, with errno, where it cannot be had. `protection` is mmap's.
  Mapping(const FileDescriptor& file, std::uint64_t bytes, int protection);
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  ~Mapping();

  std::byte* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

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
  // Gives the range, which Allocate returned for `bytes`, back to the system.
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
  using Identity = std::array<std::pair<dev_t, ino_t>, 2>;
  struct Registry;

  Segment(const Identity& identity, Mapping owned, Mapping shared);

  static Registry& ProcessRegistry();
  static std::shared_ptr<Segment> FindMapped(const Identity& identity);
  static std::shared_ptr<Segment> KeepFirst(
      const Identity& identity, const std::shared_ptr<Segment>& segment);
  static std::optional<Identity> IdentityOf(const FileDescriptor& owned,
                                            const FileDescriptor& shared);

  static Result<std::shared_ptr<Segment>> Map(Role role, FileDescriptor owned,
                                              FileDescriptor shared);

  const Identity identity_;
  const Mapping owned_;
  const Mapping shared_;
  FileDescriptor owned_file_;  // the owner's
  FileDescriptor shared_file_;
  // The second file's length when last asked; files only grow (sealed).
  std::atomic<std::uint64_t> file_bytes_{0};
  std::mutex mutex_;       // for what follows, which only the owner uses
  std::uint64_t end_ = 0;  // of what was ever allocated
  std::map<std::uint64_t, std::uint64_t> free_;  // offset to bytes, coalesced
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_SEGMENT_H_
