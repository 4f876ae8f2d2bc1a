#include "engine/accelerators.h"

#include <atomic>
#include <cstddef>
#include <new>
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
  CallBuffers& buffers = checked.buffers;
  if (device_ == nullptr ||
      (buffers.send_bytes == 0 && buffers.receive_bytes == 0)) {
    return Status::Ok();
  }
  if (buffers.lists != nullptr) {
    RINGPIPE_RETURN_IF_ERROR(ChooseForLists(buffers));
  } else {
    if (buffers.receive_bytes > 0) {
      RINGPIPE_ASSIGN_OR_RETURN(const bool owned,
                                device_->Owns(checked.call.receive));
      buffers.output_owner = owned ? Owner::kDevice : Owner::kHost;
    }
    if (buffers.send_bytes > 0) {
      RINGPIPE_ASSIGN_OR_RETURN(const bool owned,
                                device_->Owns(checked.call.send));
      buffers.input_owner = owned ? Owner::kDevice : Owner::kHost;
    }
  }
  if (buffers.input_owner != Owner::kHost ||
      buffers.output_owner != Owner::kHost) {
    checked.device = device_.get();
  }
  return Status::Ok();
}

Status Accelerators::ChooseForLists(CallBuffers& buffers) const {
  RINGPIPE_ASSIGN_OR_RETURN(buffers.output_owner,
                            OwnerOf(buffers.lists->output));
  RINGPIPE_ASSIGN_OR_RETURN(buffers.input_owner, OwnerOf(buffers.lists->input));
  if (buffers.output_owner == Owner::kHost &&
      buffers.input_owner == Owner::kHost) {
    return Status::Ok();
  }
  auto lists = std::make_shared<CallLists>(*buffers.lists);
  RINGPIPE_RETURN_IF_ERROR(TellPieces(lists->output));
  RINGPIPE_RETURN_IF_ERROR(TellPieces(lists->input));
  buffers.lists = std::move(lists);
  return Status::Ok();
}

Status Accelerators::TellPieces(PieceList& list) const {
  for (std::size_t i = 0; i < list.pieces().size(); ++i) {
    RINGPIPE_ASSIGN_OR_RETURN(const bool owned,
                              device_->Owns(list.pieces()[i].data));
    list.SetOnDevice(i, owned);
  }
  return Status::Ok();
}

Result<Owner> Accelerators::OwnerOf(const PieceList& list) const {
  std::optional<Owner> all;
  for (const PieceList::Piece& piece : list.pieces()) {
    RINGPIPE_ASSIGN_OR_RETURN(const bool owned, device_->Owns(piece.data));
    const Owner owner = owned ? Owner::kDevice : Owner::kHost;
    all = all.value_or(owner) == owner ? owner : Owner::kBoth;
  }
  return all.value_or(Owner::kHost);
}

Status Accelerators::Mark(void* stream, CheckedCall& checked) const {
  Accelerator& of_stream = device_ != nullptr ? *device_ : *host_;
  // A collective whose buffers are empty here waits for no particular device: a
  // thread must not be refused because its part happens to have no elements.
  const CallBuffers& buffers = checked.buffers;
  const bool empty = buffers.send_bytes == 0 && buffers.receive_bytes == 0 &&
                     checked.call.collective != Collective::kBarrier;
  RINGPIPE_ASSIGN_OR_RETURN(
      checked.after,
      of_stream.Mark(stream, checked.device != nullptr || empty));
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

Status Accelerators::Prepare(SlotPool& pool) {
  if (prepared_) {
    return Status::Ok();
  }
  RINGPIPE_RETURN_IF_ERROR(pool.UseLong());
  const Status prepared =
      device_->PrepareSlots(pool.memory(), pool.memory_bytes());
  if (!prepared.ok()) {
    // Not through memory that is not pinned: the device works on the slots
    // where they are.
    return prepared.WithContext("device memory cannot be used");
  }
  prepared_ = true;
  logger_.Info("device memory: " + device_->name());
  return Status::Ok();
}

void Accelerators::ReadAtPeers(const Plan& plan, const Transports& transports) {
  asked_.resize(transports.ranks());
  if (of_peers_ == nullptr) {
    of_peers_ = std::make_unique<OfPeers>();
    of_peers_->slots.reserve(transports.ranks());  // what is pinned is not lost
  }
  for (const Plan::Peer& peer : plan.peers) {
    if (!peer.receives || asked_[peer.rank]) {
      continue;
    }
    Transport::PeerSlots slots =
        transports.TransportTo(peer.rank).SlotsOf(peer.rank);
    if (slots.memory.empty()) {
      continue;
    }
    asked_[peer.rank] = true;
    const Status prepared =
        device_->PrepareSlots(slots.memory.data(), slots.memory.size());
    if (prepared.ok()) {
      of_peers_->slots.push_back(std::move(slots));
    } else {
      logger_.Info("the host copies what " + device_->name() +
                   " gets of rank " + std::to_string(peer.rank) + ": " +
                   prepared.ToString());
    }
  }
}

// At the end, where nothing may be thrown: unless there is no memory for it.
template <typename F>
void Accelerators::Warn(F words) const {
  try {
    logger_.Warning(words());
  } catch (const std::bad_alloc&) {
  }
}

// All or none: a device that does not let go of one is given up.
void Accelerators::ReleaseOfPeers() {
  if (of_peers_ == nullptr) {
    return;
  }
  bool released = true;
  for (const Transport::PeerSlots& slots : of_peers_->slots) {
    released &= device_->ReleaseSlots(slots.memory.data());
  }
  if (!released) {
    static std::atomic<OfPeers*> kept = nullptr;
    OfPeers* const those = of_peers_.release();
    those->next = kept.load();
    while (!kept.compare_exchange_weak(those->next, those)) {
    }
    Warn([&] {
      return device_->name() + " has not let go of the slots of " +
             std::to_string(those->slots.size()) +
             " other ranks: their memory stays mapped";
    });
  }
  of_peers_.reset();
}

std::string Accelerators::Describe() const {
  return prepared_ ? device_->name() + " (by copies to pinned slots)" : "";
}

void Accelerators::Release(SlotPool& pool) {
  ReleaseOfPeers();
  if (!prepared_ || device_->ReleaseSlots(pool.memory())) {
    return;
  }
  const std::size_t bytes = pool.memory_bytes();
  pool.KeepLongForEver();
  Warn([&] {
    return device_->name() +
           " has not let go of the slots: " + std::to_string(bytes) +
           " bytes, and its streams and context, are never freed";
  });
}

}  // namespace ringpipe
