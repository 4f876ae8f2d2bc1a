#ifndef RINGPIPE_VERBS_SOFT_ATOMIC_OPERATION_H_
#define RINGPIPE_VERBS_SOFT_ATOMIC_OPERATION_H_

#include <infiniband/verbs.h>

#include <cstdint>

#include "verbs/soft/layout.h"
#include "verbs/soft/peer_link.h"
#include "verbs/soft/remote_memory.h"

namespace ringpipe::verbs::soft {

// An atomic on 8 aligned bytes, in the byte order of the host.
struct AtomicOperation {
  ibv_wr_opcode opcode;  // COMPARE_AND_SWAP or FETCH_AND_ADD
  std::uint64_t compare_add;
  std::uint64_t swap;
};

// Why two atomics on one word exclude each other, whoever executes them. What
// decides is where the word lies, which is the same for all of them:
//
// - In the segment of the responder's context: every executor has it mapped,
//   and uses one instruction of the processor. No lock.
// - In private memory of the responder's process: only some executors can reach
//   it like that (those in the process itself: its own requesters, its
//   housekeeper for slots, its network thread); others read and write it by two
//   system calls. All of them, also those that would not need it, hold
//   SharedLayout::atomic_lock meanwhile.
//
// The lock is a word with the holder in it. Nobody waits for it in a loop: who
// does not get it after a few tries comes again later. Its holder may die; then
// the owner of the segment, who learns of the death of each peer that is
// attached, takes the lock from it (FreeAtomicLock). Half an operation is none:
// the word is written once or not at all. So two contexts that register the
// same private memory do not exclude each other.
inline constexpr std::uint32_t kAtomicLockOwner = ~std::uint32_t{0};

// One attempt. False: somebody else holds it.
bool TryAtomicLock(SharedLayout& layout, std::uint32_t holder);
// Returns whether the segment's owner wants it and must be woken.
bool ReleaseAtomicLock(SharedLayout& layout);
// Releases what `holder`, which is dead, may hold.
void FreeAtomicLock(SharedLayout& layout, std::uint32_t holder);

enum class AtomicResult { kDone, kBusy, kForbidden, kFaulted, kGone };

// Executes `operation` on `range`, 8 checked bytes of the peer; `old` is what
// they held. `holder` names the executor for the lock, not 0. `wake_owner` is
// set when the owner wants the lock.
AtomicResult ExecuteAtomicAcross(const PeerLink& link, const RemoteRange& range,
                                 const AtomicOperation& operation,
                                 std::uint32_t holder, std::uint64_t* old,
                                 bool* wake_owner);

// The same for the owner, on its own memory. False: the lock is held; the owner
// will be woken when it is free.
bool ExecuteAtomicAsOwner(SharedLayout& layout, const RegionPlace& place,
                          const AtomicOperation& operation, std::uint64_t* old);

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_ATOMIC_OPERATION_H_
