#ifndef RINGPIPE_ENGINE_ACCELERATORS_H_
#define RINGPIPE_ENGINE_ACCELERATORS_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "cuda/accelerator.h"
#include "engine/planner.h"
#include "memory_pool/slot_pool.h"
#include "pipeline/abilities.h"
#include "pipeline/piece_list.h"
#include "pipeline/plan.h"
#include "pipeline/transports.h"

namespace ringpipe {

// Of a communicator: the host's accelerator, and at most one device's, and
// which of them a buffer's memory is.
//
// After Find, any thread may call Choose, Mark, CheckIsOfHost and Describe. The
// others: one thread at a time.
class Accelerators {
 public:
  // `device`: the user's, which may be null.
  Accelerators(std::shared_ptr<Accelerator> device, const Logger& logger);
  // After Release, where there was Prepare.
  ~Accelerators();
  Accelerators(const Accelerators&) = delete;
  Accelerators& operator=(const Accelerators&) = delete;

  // For this communicator alone: kInvalidArgument where another one has the
  // user's.
  Status Take();
  // Unless the user gave one: CUDA's, if there can be.
  void Find();

  Accelerator& host() { return *host_; }

  // Sets checked.device, and whose memory each of its buffers is.
  // kInvalidArgument for memory that neither the host nor the device can use.
  Status Choose(CheckedCall& checked) const;
  // Sets checked.after: where the call's stream is now (Accelerator::Mark).
  Status Mark(void* stream, CheckedCall& checked) const;
  // kInvalidArgument for memory of the device.
  Status CheckIsOfHost(const void* memory) const;

  // At the first call with memory of the device: lets it pin the slots. Other
  // ranks may do so at another call, or never.
  Status Prepare(SlotPool& pool);
  // At each call with memory of the device, after Prepare: lets it read the
  // slots of the peers of which it receives, where they were not there before.
  // Where it cannot, the host takes what it needs from there.
  void ReadAtPeers(const Plan& plan, const Transports& transports);
  // "cuda:0 (by copies to pinned slots)", once its memory was used; else "".
  // Any thread.
  std::string Describe() const;

  // Before the slots are freed, and peers' unmapped. What the device does not
  // let go of never is.
  void Release(SlotPool& pool);

 private:
  // Of all pieces.
  Result<Owner> OwnerOf(const PieceList& list) const;
  // Whose memory each is.
  Status TellPieces(PieceList& list) const;
  Status ChooseForLists(CallBuffers& buffers) const;
  void ReleaseOfPeers();
  template <typename F>
  void Warn(F words) const;

  const Logger logger_;
  const std::unique_ptr<Accelerator> host_;
  std::shared_ptr<Accelerator> device_;  // may be null
  bool has_taken_ = false;  // `device_`, which others could have, too
  std::atomic<bool> prepared_ = false;
  std::vector<bool> asked_;  // by rank: of its slots
  // Which the device reads; null: none yet.
  struct OfPeers {
    std::vector<Transport::PeerSlots> slots;
    OfPeers* next = nullptr;  // of those that are kept for ever
  };
  std::unique_ptr<OfPeers> of_peers_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_ACCELERATORS_H_
