// What peers see of a context: two files of fixed layout, its segment.
//
//   OwnedLayout                           SharedLayout
//   regions | queue pairs | receives      completion queues | queue pairs |
//                                         completions | slots | data ...
//                                                               '- Allocate
//
// "Owner" is the process of the context, "peer" the one requester that is
// connected to the queue pair. The owner alone writes what is in OwnedLayout,
// which peers have mapped read-only: nobody else says which memory is given to
// whom. Peers write to SharedLayout as well, all of it; one of them may die at
// any instruction, and may be wrong: the owner checks whatever it reads there
// before use, and keeps its own copy of what it decides by.
#ifndef RINGPIPE_VERBS_SOFT_LAYOUT_H_
#define RINGPIPE_VERBS_SOFT_LAYOUT_H_

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ringpipe::verbs::soft {

inline constexpr std::uint32_t kMaxQueuePairs = 1024;
inline constexpr std::uint32_t kMaxCompletionQueues = 1024;
inline constexpr std::uint32_t kMaxSharedReceiveQueues = 64;
inline constexpr std::uint32_t kMaxRegions = 1 << 16;
inline constexpr std::uint32_t kMaxQueueDepth = 8192;
inline constexpr std::uint32_t kMaxSge = 8;
inline constexpr std::uint32_t kMaxInline = 256;
inline constexpr int kMaxCqe = 1 << 20;
inline constexpr int kMaxRdAtomic = 16;
inline constexpr std::uint32_t kSlots = 8;
inline constexpr std::uint32_t kSlotBytes = 32 * 1024;

// A queue pair number is (block of the context, index in the context).
inline constexpr std::uint32_t kIndexBits = 10;
inline constexpr std::uint32_t kBlockBits = 14;
static_assert(kMaxQueuePairs == 1u << kIndexBits);
static_assert(kIndexBits + kBlockBits == 24, "QPNs have 24 bits");
inline constexpr std::uint32_t IndexOf(std::uint32_t qpn) {
  return qpn & (kMaxQueuePairs - 1);
}
inline constexpr std::uint32_t BlockOf(std::uint32_t qpn) {
  return qpn >> kIndexBits;
}

// --- OwnedLayout -------------------------------------------------------------

// A registered range. The other members do not change while `key` is not 0 and
// as long as a peer is inside the queue pair (see `busy`).
struct OwnedRegion {
  std::atomic<std::uint32_t> key;  // 0: none
  std::uint32_t pd;
  std::uint32_t access;
  std::uint64_t iova;     // where it begins for those who name its key
  std::uint64_t address;  // in the owner's address space
  std::uint64_t bytes;
  std::uint64_t offset;  // in the segment, or kPrivateMemory
};
inline constexpr std::uint64_t kPrivateMemory = ~std::uint64_t{0};

// Where a receive is to go.
struct alignas(64) ScatterList {
  std::uint32_t count;
  ibv_sge sges[kMaxSge];
};

struct OwnedQueuePair {
  alignas(64) std::atomic<std::uint32_t> state;  // ibv_qp_state
  std::atomic<std::uint32_t> incarnation;        // changes at create and reset
  std::atomic<std::uint32_t> dest_qpn;
  std::atomic<std::uint32_t> dest_remote;  // 1: it is on another host
  std::atomic<std::uint32_t> pd;
  std::atomic<std::uint32_t> access;
  std::atomic<std::uint32_t> recv_cq;
  std::atomic<std::uint32_t> ring_mask;
  std::atomic<std::uint32_t> min_rnr_timer;
  std::atomic<std::uint32_t> type;  // ibv_qp_type
  std::atomic<std::uint32_t> max_dest_rd_atomic;
  // The index of its shared receive queue + 1; 0: it has receives of its own.
  std::atomic<std::uint32_t> shared_receives;
  std::atomic<std::uint32_t> recv_psn;            // of the first message
  alignas(64) std::atomic<std::uint32_t> posted;  // receives ever posted
  // Slots ever emptied, and which of the last ones the owner's tables refused.
  alignas(64) std::atomic<std::uint32_t> slots_done;
  std::atomic<std::uint32_t> slot_refused[kSlots];
};

// Of a shared receive queue.
struct OwnedReceiveRing {
  alignas(64) std::atomic<std::uint32_t> posted;  // ever
  std::atomic<std::uint32_t> mask;
  std::atomic<std::uint32_t> pd;
  // Peers wake the owner when fewer than this many are left. 0: they need not.
  std::atomic<std::uint32_t> limit;
  ScatterList receives[kMaxQueueDepth];
};

struct OwnedLayout {
  OwnedRegion regions[kMaxRegions];
  OwnedQueuePair queue_pairs[kMaxQueuePairs];
  ScatterList receives[kMaxQueuePairs][kMaxQueueDepth];
  OwnedReceiveRing receive_rings[kMaxSharedReceiveQueues];
};

// --- SharedLayout ------------------------------------------------------------

// What concerns the peers of one completion queue.
struct alignas(64) SharedCompletionQueue {
  enum Armed : std::uint32_t { kNotArmed, kNext, kSolicited };
  // Owner sets, whoever completes takes it and owes an event.
  std::atomic<std::uint32_t> armed;
  // Events ever owed to the completion channel for this queue.
  std::atomic<std::uint32_t> events;
  // A bit for each queue pair of the owner with new receive completions. Peers
  // set, the owner clears before it looks.
  alignas(64) std::atomic<std::uint64_t> ready[kMaxQueuePairs / 64];
};

// The completion of a receive, by whoever executed the operation. Receives
// complete in order: entry i of the ring is receive i and completion i.
struct alignas(64) ReceiveCompletion {
  std::uint32_t status;  // ibv_wc_status
  std::uint32_t opcode;  // ibv_wc_opcode
  std::uint32_t byte_count;
  std::uint32_t immediate;  // network byte order
  std::uint32_t flags;      // ibv_wc_flags
  // Of a datagram; 0: the peer that the queue pair is connected to.
  std::uint32_t src_qpn;
  std::uint16_t slid;
  std::uint16_t service_level;
  // Which receive of the shared receive queue this is.
  std::uint32_t shared_receive;
};

// The receives that several queue pairs share, oldest first. Word p % size of
// the ring stands for the receive that was posted as number p:
//
//   | p:32 | index in OwnedReceiveRing::receives:16 | claimant:16 |
//
// The owner writes it with claimant 0. A peer takes the receive for its queue
// pair by exchanging that word for the same with the queue pair's index + 1.
// So whoever dies anywhere has left its name, and the owner believes no claim
// that is not here.
struct SharedReceiveRing {
  // All before this number are claimed, and perhaps this one.
  alignas(64) std::atomic<std::uint32_t> claimed;
  alignas(64) std::atomic<std::uint64_t> words[kMaxQueueDepth];
};

// What the owner is to do, with its own memory and the bytes of a slot, because
// the peer cannot reach that memory itself.
struct SlotDescriptor {
  enum Kind : std::uint32_t { kWrite, kRead, kCompareSwap, kFetchAdd };
  std::uint32_t kind;
  std::uint32_t key;
  std::uint64_t address;  // as the key has it
  std::uint32_t access;   // what the region must allow
  std::uint32_t bytes;
  std::uint64_t compare_add;
  std::uint64_t swap;
};

struct SharedQueuePair {
  alignas(64) std::atomic<std::uint32_t> completed;  // receives ever completed
  // Receives ever taken from the shared receive queue into the ring: as
  // `completed`, or one more.
  std::atomic<std::uint32_t> claimed;
  // Odd while the peer is between looking at this queue pair and the end of
  // what it does with it: the hazard marker that deregistration waits for.
  std::atomic<std::uint32_t> busy;
  // An ibv_event_type + 1 when the peer found an error at the responder, or
  // kFaultWithoutEvent: the owner then moves the queue pair to ERR.
  std::atomic<std::uint32_t> fault;
  // Slots: filled by the peer, emptied by the owner.
  alignas(64) std::atomic<std::uint32_t> slots_filled;
  SlotDescriptor slots[kSlots];
};
inline constexpr std::uint32_t kFaultWithoutEvent = 0xffff;

struct SharedLayout {
  // Set by peers before they wake the owner: look at `fault` and at the slots.
  std::atomic<std::uint32_t> attention;
  // Excludes atomics on private memory from each other, see atomic_operation.h.
  std::atomic<std::uint32_t> atomic_lock;
  std::atomic<std::uint32_t> atomic_lock_wanted;  // by the owner
  SharedCompletionQueue completion_queues[kMaxCompletionQueues];
  SharedQueuePair queue_pairs[kMaxQueuePairs];
  ReceiveCompletion completions[kMaxQueuePairs][kMaxQueueDepth];
  SharedReceiveRing receive_rings[kMaxSharedReceiveQueues];
  std::byte slots[kMaxQueuePairs][kSlots][kSlotBytes];
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert((kMaxQueueDepth & (kMaxQueueDepth - 1)) == 0);

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_LAYOUT_H_
