#ifndef RINGPIPE_ENGINE_ACCELERATORS_H_
#define RINGPIPE_ENGINE_ACCELERATORS_H_

#include <memory>

#include "base/log.h"
#include "base/status.h"
#include "cuda/accelerator.h"
#include "engine/planner.h"
#include "memory_pool/slot_pool.h"

namespace ringpipe {

// Of a communicator: the host's accelerator, and at most one device's. The
// memory that a call's buffers are in decides which of them serves it.
//
// After Find, any thread may call Choose, Mark and CheckIsOfHost. The others:
// one thread at a time.
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

  // Sets checked.accelerator, from its call and buffers. kInvalidArgument where
  // some of these are memory of the device and some are not.
  Status Choose(CheckedCall& checked) const;
  // Sets checked.after: where the call's stream is now (Accelerator::Mark).
  Status Mark(void* stream, CheckedCall& checked) const;
  // kInvalidArgument for memory of the device.
  Status CheckIsOfHost(const void* memory) const;

  // At the first call on `accelerator`'s memory: lets it pin the slots. Other
  // ranks may do so at another call, or never.
  Status Prepare(Accelerator& accelerator, SlotPool& pool);
  // Before the slots are freed. Where the device does not let go of them, they
  // never are.
  void Release(SlotPool& pool);

 private:
  Result<bool> OwnsAll(const CheckedCall& checked) const;
  Status Mixed() const;

  const Logger logger_;
  const std::unique_ptr<Accelerator> host_;
  std::shared_ptr<Accelerator> device_;  // may be null
  bool has_taken_ = false;  // `device_`, which others could have, too
  bool prepared_ = false;
};

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_ACCELERATORS_H_
