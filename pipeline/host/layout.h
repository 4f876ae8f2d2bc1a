// What lies in the header of a rank's region. Each word is written by one rank:
// the owner of the region or, in an inbox, the peer whose inbox it is. Whatever
// a peer can write is read once, checked, then used.
//
//     | RegionHeader | Inbox of rank 0 | ... | Inbox of rank size-1 |
//
// A number of a message is that of its stream (from one rank to another), from
// 1, over all calls; 0: none yet. Rings have a place for each of kWindow
// numbers that follow each other; what a place held before is overwritten when
// both ends are done with it.
#ifndef RINGPIPE_PIPELINE_HOST_LAYOUT_H_
#define RINGPIPE_PIPELINE_HOST_LAYOUT_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "pipeline/call_check.h"
#include "pipeline/host/region.h"

namespace ringpipe {

inline constexpr std::uint64_t kWindow = 64;
// The largest message that a first message brings along.
inline constexpr std::uint32_t kHostEagerBytes = 4096;

// The owner's first message of a call, the same for all peers: which call this
// is, and the eager message where there is one. There are two, by the parity of
// the call's sequence number; one is overwritten when every peer that had to
// read it has begun a later call.
struct alignas(64) CallLine {
  static constexpr std::size_t kShort = 40;

  std::atomic<std::uint64_t> call;     // sequence + 1; written last
  std::uint64_t check;                 // of the digest
  std::atomic<std::uint32_t> payload;  // bytes + 1; 0: none yet
  std::uint32_t unused;
  std::array<std::byte, kShort> short_payload;  // in the same cache line
  // Read where `check` differs.
  Digest digest;
  std::array<std::byte, kHostEagerBytes> long_payload;
};

// What a peer writes for the owner.
struct alignas(64) Inbox {
  // The peer's message of this number: read it in the peer's region at
  // `offset`, or it is in the owner's target already.
  struct alignas(32) Message {
    std::atomic<std::uint64_t> number;  // written last
    std::uint64_t offset;
    std::uint32_t bytes;
    std::uint32_t in_target;
  };
  // The owner's message of this number may be put into the peer's region at
  // `offset`; kNowhere: the peer reads it where it lies.
  struct alignas(32) Target {
    std::atomic<std::uint64_t> number;  // written last
    std::uint64_t offset;
    std::uint64_t bytes;
  };
  static constexpr std::uint64_t kNowhere = ~std::uint64_t{0};

  std::array<Message, kWindow> messages;
  std::array<Target, kWindow> targets;
  // The owner's message of this number was read where it lies.
  std::array<std::atomic<std::uint64_t>, kWindow> released;
  // The owner's messages up to this number were taken from `messages`.
  alignas(64) std::atomic<std::uint64_t> taken;
  // Whether the peer is writing into the owner's memory.
  alignas(64) std::atomic<std::uint32_t> writing;
};

// Followed by the inboxes, by rank.
struct alignas(64) RegionHeader {
  static constexpr std::uint64_t kMagic = 0x72696e6770697065;  // "ringpipe"

  std::uint64_t magic;
  std::uint32_t rank;
  std::uint32_t size;
  // Nobody may write into the owner's memory any more.
  std::atomic<std::uint32_t> revoked;
  // Sleeps, or is about to: wake it by its eventfd.
  std::atomic<std::uint32_t> asleep;
  std::array<CallLine, 2> calls;

  static RegionHeader& Of(Region& region) {
    return *reinterpret_cast<RegionHeader*>(region.header());
  }
  static std::size_t Bytes(int size) {
    return sizeof(RegionHeader) + sizeof(Inbox) * size;
  }
  Inbox& inbox(int rank) { return reinterpret_cast<Inbox*>(this + 1)[rank]; }
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(offsetof(CallLine, digest) == 64);

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_HOST_LAYOUT_H_
