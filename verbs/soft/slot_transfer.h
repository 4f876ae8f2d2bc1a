#ifndef RINGPIPE_VERBS_SOFT_SLOT_TRANSFER_H_
#define RINGPIPE_VERBS_SOFT_SLOT_TRANSFER_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "verbs/soft/layout.h"
#include "verbs/soft/operation.h"
#include "verbs/soft/remote_memory.h"

namespace ringpipe::verbs::soft {

// The way to private memory of a peer where the kernel forbids process_vm_*:
// through the slots of its queue pair, which the peer's housekeeper serves.
//
//   filled: who executes, up to kSlots ahead of done
//   done:   the peer has served these
//   taken:  what came back (of READ and atomics) has been copied out
//
// What is in the segment tells the peer; whoever executes goes by its own
// account of what it filled.
//
// One transfer at a time, which several calls of Run push on. Not thread-safe.
class SlotTransfer {
 public:
  using Slot = std::byte[kSlotBytes];

  SlotTransfer(const OwnedQueuePair& owned, SharedQueuePair& shared,
               Slot* slots)
      : owned_(owned), shared_(shared), slots_(slots) {}

  // A transfer has begun and has not ended: only its operation may go on.
  bool active() const { return active_; }

  // Whatever came of its operation: another one may come.
  void End() { active_ = false; }

  // kDone, kFailed (the peer's own tables refuse it) or kInFlight. `wake` is
  // set where the peer must be woken.
  Step Run(const Operation& operation, std::span<const RemoteRange> remote,
           bool* wake);

 private:
  void Take(const Operation& operation, bool is_write);
  bool Fill(const Operation& operation, std::span<const RemoteRange> remote,
            SlotDescriptor::Kind kind);

  const OwnedQueuePair& owned_;
  SharedQueuePair& shared_;
  Slot* const slots_;
  bool active_ = false;
  bool refused_ = false;
  std::uint32_t filled_ = 0;
  std::uint32_t taken_ = 0;
  std::uint32_t slot_bytes_[kSlots] = {};
  std::uint64_t bytes_filled_ = 0;
  std::uint64_t bytes_taken_ = 0;
};

// By what the owner of a queue pair decides, none of which peers can write.
struct SlotRights {
  const OwnedRegion* regions;
  std::uint32_t pd;
  std::uint32_t receive_pd;  // of the memory of receives
  std::uint32_t access;      // ibv_access_flags of the queue pair
};

enum class SlotOutcome {
  kDone,
  kRefused,
  kBusy,  // not now: the owner will be woken
};

// The owner's side: does what `slot`, with its bytes at `data`, asks for.
SlotOutcome ServeSlot(SharedLayout& layout, const SlotDescriptor& slot,
                      std::byte* data, const SlotRights& rights);

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_SLOT_TRANSFER_H_
