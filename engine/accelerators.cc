#include "engine/accelerators.h"

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "pipeline/host_accelerator.h"
#include "pipeline/piece_list.h"

namespace ringpipe {

Accelerators::Accelerators(std::shared_ptr<Accelerator> device,
                           const Logger& logger)
    : logger_(logger),
      host_(CreateHostAccelerator()),
      device_(std::move(device)) {}

Accelerators::~Accelerators() {
  if (has_taken_) {
    device_->GiveBack();
  }
}

Status Accelerators::Take() {
  if (device_ != nullptr && !device_->Take()) {
    return {StatusCode::kInvalidArgument,
            "CommunicatorOptions::accelerator (" + device_->name() +
                ") serves another communicator already: give each communicator "
                "one of its own"};
  }
  has_taken_ = device_ != nullptr;
  return Status::Ok();
}

void Accelerators::Find() {
  if (device_ != nullptr) {
    return;
  }
  auto cuda = CreateCudaAccelerator();
  if (cuda.ok()) {
    device_ = std::move(cuda).value();
  } else {
    logger_.Debug("host memory only: " + cuda.status().ToString());
  }
}

// --- Whose memory it is ------------------------------------------------------

Status Accelerators::Choose(CheckedCall& checked) const {
  checked.accelerator = host_.get();
  const CallBuffers& buffers = checked.buffers;
  if (device_ == nullptr ||
      (buffers.send_bytes == 0 && buffers.receive_bytes == 0)) {
    return Status::Ok();
  }
  RINGPIPE_ASSIGN_OR_RETURN(const bool owned, OwnsAll(checked));
  if (owned) {
    checked.accelerator = device_.get();
  }
  return Status::Ok();
}

Result<bool> Accelerators::OwnsAll(const CheckedCall& checked) const {
  const Call& call = checked.call;
  const CallBuffers& buffers = checked.buffers;
  if (buffers.lists == nullptr) {
    const bool has_receive = buffers.receive_bytes > 0;
    RINGPIPE_ASSIGN_OR_RETURN(
        const bool owned,
        device_->Owns(has_receive ? call.receive : call.send));
    if (has_receive && buffers.send_bytes > 0) {
      RINGPIPE_ASSIGN_OR_RETURN(const bool send, device_->Owns(call.send));
      if (send != owned) {
        return Mixed();
      }
    }
    return owned;
  }
  std::optional<bool> owned;
  for (const PieceList* const list :
       {&buffers.lists->output, &buffers.lists->input}) {
    for (const PieceList::Piece& piece : list->pieces()) {
      RINGPIPE_ASSIGN_OR_RETURN(const bool owns, device_->Owns(piece.data));
      if (owned.value_or(owns) != owns) {
        return Mixed();
      }
      owned = owns;
    }
  }
  return owned.value_or(false);
}

Status Accelerators::Mixed() const {
  return {StatusCode::kInvalidArgument,
          "one buffer is memory of " + device_->name() +
              " and another is not; use one kind for all"};
}

Status Accelerators::Mark(void* stream, CheckedCall& checked) const {
  Accelerator& of_stream = device_ != nullptr ? *device_ : *host_;
  RINGPIPE_ASSIGN_OR_RETURN(checked.after, of_stream.Mark(stream));
  return Status::Ok();
}

Status Accelerators::CheckIsOfHost(const void* memory) const {
  if (device_ == nullptr) {
    return Status::Ok();
  }
  RINGPIPE_ASSIGN_OR_RETURN(const bool owned, device_->Owns(memory));
  return owned ? Status(StatusCode::kInvalidArgument,
                        "this is memory of " + device_->name() +
                            ", and only host memory can be registered; calls "
                            "take device memory as it is")
               : Status::Ok();
}

// --- Its slots ---------------------------------------------------------------

Status Accelerators::Prepare(Accelerator& accelerator, SlotPool& pool) {
  if (prepared_ || &accelerator != device_.get()) {
    return Status::Ok();
  }
  RINGPIPE_RETURN_IF_ERROR(pool.UseLong());
  const Status prepared =
      accelerator.PrepareSlots(pool.memory(), pool.memory_bytes());
  if (!prepared.ok()) {
    // Not copied through memory that is not pinned: the reductions work on the
    // slots where they are.
    return prepared.WithContext("device memory cannot be used");
  }
  prepared_ = true;
  logger_.Info("device memory: " + accelerator.name());
  return Status::Ok();
}

void Accelerators::Release(SlotPool& pool) {
  if (!prepared_ || device_->ReleaseSlots(pool.memory())) {
    return;
  }
  logger_.Warning(device_->name() + " has not let go of the slots: " +
                  std::to_string(pool.memory_bytes()) +
                  " bytes, and its streams and context, are never freed");
  pool.KeepLongForEver();
}

}  // namespace ringpipe
