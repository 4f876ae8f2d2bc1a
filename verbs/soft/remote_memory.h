#ifndef RINGPIPE_VERBS_SOFT_REMOTE_MEMORY_H_
#define RINGPIPE_VERBS_SOFT_REMOTE_MEMORY_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "verbs/soft/peer_link.h"
#include "verbs/soft/region_table.h"

namespace ringpipe::verbs::soft {

// A checked piece of registered memory of a peer.
struct RemoteRange {
  std::uint64_t address;  // as the key has it
  std::uint64_t bytes;
  std::uint32_t key;
  std::uint32_t access;
  RegionPlace place;
};

// Walks through a list of local ranges.
class RangeCursor {
 public:
  explicit RangeCursor(std::span<const iovec> ranges) : ranges_(ranges) {}

  void Skip(std::uint64_t bytes);
  // Copies the next `bytes` to `target`.
  void CopyTo(std::byte* target, std::uint64_t bytes);
  // Copies `source` to the next `bytes`.
  void CopyFrom(const std::byte* source, std::uint64_t bytes);
  // The next `bytes` as ranges; `out` has room for all. Returns how many.
  int Slice(std::uint64_t bytes, iovec* out);

 private:
  // The longest piece of at most `most` bytes that is contiguous.
  iovec Next(std::uint64_t most);

  std::span<const iovec> ranges_;
  std::size_t index_ = 0;
  std::uint64_t offset_ = 0;
};

enum class CopyResult {
  kDone,
  kForbidden,  // by the kernel: the peer must copy itself
  kFaulted,    // the memory is registered but not there
  kGone,       // the peer's process is
};

// Copies within this address space. An aligned copy of 8 or 4 bytes is one
// atomic store with release order: a word that somebody may poll.
void CopyBytes(std::byte* target, const std::byte* source, std::uint64_t bytes);

// Where `range` is in this address space; nullptr: it is not. `sane` is false
// if it claims to be in the peer's segment and is not.
std::byte* FindMapped(const PeerLink& link, const RemoteRange& range,
                      bool* sane);

enum class Direction { kToPeer, kFromPeer };

// Copies between `local` and `remote`, which have the same length in all; where
// the remote memory is mapped, by CopyBytes.
CopyResult CopyAcross(Direction direction, const PeerLink& link,
                      std::span<const iovec> local,
                      std::span<const RemoteRange> remote);

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_REMOTE_MEMORY_H_
