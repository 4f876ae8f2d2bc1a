// What lies in the header of a rank's region. Each word is written by one rank:
// the owner of the region or, in an inbox, the peer whose inbox it is. Whatever
// a peer can write is atomic, so that it is read once, checked, then used; only
// payloads are not, of which any bytes will do.
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
#include <bit>
#include <cstddef>
#include <cstdint>

#include "pipeline/call_check.h"
#include "pipeline/host/region.h"
#include "pipeline/host/tuning.h"

namespace ringpipe {

// With which order a word is written that says of others that they are there.
#ifdef RINGPIPE_PLANTED_RACE  // a mistake, for a test that has to find it
inline constexpr auto kPublishes = std::memory_order_relaxed;
#else
inline constexpr auto kPublishes = std::memory_order_release;
#endif

// A Digest of which each word may be written while it is read.
class AtomicDigest {
 public:
  void Write(const Digest& digest) {
    const auto words = std::bit_cast<Words>(digest);
    for (std::size_t i = 0; i < words.size(); ++i) {
      words_[i].store(words[i], std::memory_order_relaxed);
    }
  }
  Digest Read() const {
    Words words;
    for (std::size_t i = 0; i < words.size(); ++i) {
      words[i] = words_[i].load(std::memory_order_relaxed);
    }
    return std::bit_cast<Digest>(words);
  }

 private:
  using Words = std::array<std::uint64_t, sizeof(Digest) / 8>;
  std::array<std::atomic<std::uint64_t>, sizeof(Digest) / 8> words_;
};

// The owner's first message of a call, the same for all peers: which call this
// is, and the eager message where there is one. There are two, by the parity of
// the call's sequence number; one is overwritten when every peer that had to
// read it has begun a later call.
struct alignas(64) CallLine {
  std::atomic<std::uint64_t> call;     // sequence + 1; written last
  std::atomic<std::uint64_t> check;    // CallCheck::word
  std::atomic<std::uint32_t> payload;  // bytes + 1; 0: none yet
  std::uint32_t unused;
  std::array<std::byte, kHostShortBytes>
      short_payload;  // in the same cache line
  // Read where `check` differs: by a rank that makes another call, for which
  // the owner may not wait before it overwrites this. `call` is 0 meanwhile.
  AtomicDigest digest;
  std::array<std::byte, kHostEagerBytes> long_payload;
};

// What an address of a rank's is in.
enum class Space : std::uint32_t {
  kNone,
  kRegion,  // an offset in its region
  kSlot,    // the same, where a reader may write back what it has read
  kTarget,  // the receiver's own target, into which the sender has written
};

// What a peer writes for the owner.
struct alignas(64) Inbox {
  struct alignas(32) Entry {
    std::atomic<std::uint64_t> number;  // written last
    std::atomic<std::uint64_t> address;
    std::atomic<std::uint32_t> bytes;
    std::atomic<Space> space;
  };

  // The peer's message of this number: the owner reads it at the peer's
  // `address`, unless it is in the owner's target already.
  std::array<Entry, kWindow> messages;
  // The owner's message of this number may be put to the peer's `address`;
  // kNone: the peer reads it where it lies.
  std::array<Entry, kWindow> targets;
  // The owner's message of this number was read where it lies.
  std::array<std::atomic<std::uint64_t>, kWindow> released;
  // The owner's messages up to this number were taken from `messages`.
  alignas(64) std::atomic<std::uint64_t> taken;
  // Whether the peer is writing into the owner's memory.
  alignas(64) std::atomic<std::uint32_t> writing;
};

// Why the owner has ended the communicator.
struct Failure {
  enum State : std::uint32_t { kNone, kBeingWritten, kThere };
  std::atomic<std::uint64_t> first;  // sequence of the first call that it ends
  std::atomic<std::uint32_t> state;
  std::atomic<std::uint32_t> code;
  std::atomic<std::uint32_t> bytes;
  std::array<char, 4096> text;  // of the message, as the bootstrap takes it
};

// Followed by the inboxes, by rank.
struct alignas(64) RegionHeader {
  // Another one where what is below changes.
  static constexpr std::uint64_t kMagic = 0x72696e6770697032;  // "ringpip2"

  // Read by peers at each message.
  // Nobody may write into the owner's memory any more.
  std::atomic<std::uint32_t> revoked;
  // Sleeps, or is about to: see Sleeper.
  std::atomic<std::uint32_t> asleep;
  Failure failure;

  std::uint64_t magic;
  std::uint32_t rank;
  std::uint32_t size;
  // Where the owner's long slots are; 0 bytes, written last: it has none yet.
  std::atomic<std::uint64_t> slots_offset;
  std::atomic<std::uint64_t> slots_bytes;
  // Which GPU the owner uses (Accelerator::Gpus); 0: none yet. Written once.
  std::atomic<std::uint64_t> gpu;
  // The call that the owner makes, or has made last: sequence + 1. It has read
  // whatever was said of those before. Written at each call, so not in the line
  // of the first two.
  std::atomic<std::uint64_t> begun;
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
static_assert(offsetof(RegionHeader, begun) >= 64);

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_HOST_LAYOUT_H_
