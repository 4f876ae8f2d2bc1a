// How a send request is executed: by the requester, on the peer's memory. Hot
// path.
//
//   busy -> odd                          the peer's hazard marker
//     state, dest_qpn, incarnation ok?   else not ready: transport retries
//     receive there?                     else RNR (SEND, WRITE with immediate)
//     keys, bounds, access, pd ok?       by the peer's region table
//     copy
//     entry, completed + 1, ready bit    the peer's completion
//     armed? then write its channel
//   busy -> even
//
// Whoever takes something away (deregister, ERR, reset) first says so in the
// segment and then waits for `busy` to be even or to change: both sides store
// first and load then, seq_cst, so that one of the two sees the other.
#include <algorithm>

#include "verbs/soft/context.h"
#include "verbs/soft/queue_pair.h"
#include "verbs/soft/requester.h"

namespace ringpipe::verbs::soft {
namespace {

// Also says how much a request may carry.
constexpr std::uint64_t kMaxMessageBytes = std::uint64_t{1} << 30;

class BusyScope {
 public:
  explicit BusyScope(std::atomic<std::uint32_t>& busy) : busy_(busy) {
    // Odd already: a requester died here before.
    odd_ = (busy_.load(std::memory_order_relaxed) + 1) | 1;
    busy_.store(odd_, std::memory_order_seq_cst);
  }
  ~BusyScope() { busy_.store(odd_ + 1, std::memory_order_release); }
  BusyScope(const BusyScope&) = delete;
  BusyScope& operator=(const BusyScope&) = delete;

 private:
  std::atomic<std::uint32_t>& busy_;
  std::uint32_t odd_;
};

bool HasImmediate(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

bool IsSend(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM;
}

}  // namespace

Requester::Step Requester::Execute(const Request& request,
                                   ibv_wc_status* status) {
  Source source;
  if (!Gather(request, &source)) {
    *status = IBV_WC_LOC_PROT_ERR;
    return Step::kFailed;
  }
  if (source.bytes > kMaxMessageBytes) {
    *status = IBV_WC_LOC_LEN_ERR;
    return Step::kFailed;
  }
  if (!EnsureAttached()) {
    return Step::kNotReady;
  }
  BusyScope busy(peer_->busy);
  if (!PeerIsReady()) {
    return Step::kNotReady;
  }
  if (request.opcode != IBV_WR_RDMA_WRITE) {
    if (const Step step = HasReceive(); step != Step::kDone) {
      return step;
    }
  }
  return IsSend(request.opcode) ? ExecuteSend(request, source, status)
                                : ExecuteWrite(request, source, status);
}

bool Requester::Gather(const Request& request, Source* source) const {
  if ((request.flags & IBV_SEND_INLINE) != 0) {
    if (request.inline_bytes > 0) {
      const std::size_t slot = &request - requests_.get();
      source->ranges[0] = {inline_data_.get() + slot * max_inline_,
                           request.inline_bytes};
      source->count = 1;
      source->bytes = request.inline_bytes;
    }
    return true;
  }
  for (std::uint32_t i = 0; i < request.sge_count; ++i) {
    const ibv_sge& sge = request.sges[i];
    std::uint64_t offset;
    if (sge.length == 0) {
      continue;
    }
    if (!CheckRegion(context_->regions(), sge.lkey, qp_->pd_id(), 0, sge.addr,
                     sge.length, &offset)) {
      return false;
    }
    source->ranges[source->count++] = {reinterpret_cast<void*>(sge.addr),
                                       sge.length};
    source->bytes += sge.length;
  }
  return true;
}

bool Requester::PeerIsReady() {
  const std::uint32_t state = peer_->state.load(std::memory_order_seq_cst);
  const bool receives =
      state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD;
  if (!receives ||
      peer_->dest_qpn.load(std::memory_order_relaxed) != qp_->qp_num ||
      peer_->recv_psn.load(std::memory_order_relaxed) != send_psn_ ||
      peer_->fault.load(std::memory_order_relaxed) != 0) {
    return false;
  }
  if (peer_->incarnation.load(std::memory_order_relaxed) == incarnation_) {
    return true;
  }
  // The peer was reset and connected again. Where nothing was sent before, the
  // packet sequence numbers still fit; else, as on hardware, they never will.
  needs_attach_ = executed_ == 0;
  return false;
}

// --- RDMA WRITE --------------------------------------------------------------

Requester::Step Requester::ExecuteWrite(const Request& request,
                                        const Source& source,
                                        ibv_wc_status* status) {
  RemoteRange target = {request.remote_address, source.bytes, kPrivateMemory,
                        request.rkey, IBV_ACCESS_REMOTE_WRITE};
  const bool enabled = (peer_->access.load(std::memory_order_relaxed) &
                        IBV_ACCESS_REMOTE_WRITE) != 0;
  // A write of nothing needs no key.
  const bool allowed =
      enabled && (source.bytes == 0 ||
                  CheckRegion(segment_->layout().regions, request.rkey,
                              peer_->pd.load(std::memory_order_relaxed),
                              IBV_ACCESS_REMOTE_WRITE, target.address,
                              target.bytes, &target.offset));
  if (!allowed) {
    FaultPeer(IBV_EVENT_QP_ACCESS_ERR + 1);
    *status = IBV_WC_REM_ACCESS_ERR;
    return Step::kFailed;
  }
  if (source.bytes > 0) {
    const Step step = Move(source, {&target, 1});
    if (step == Step::kFailed) {
      FaultPeer(IBV_EVENT_QP_ACCESS_ERR + 1);
      *status = IBV_WC_REM_ACCESS_ERR;
    }
    if (step != Step::kDone) {
      return step;
    }
  }
  if (request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
    CompleteReceive(request, source.bytes, IBV_WC_SUCCESS);
  }
  return Step::kDone;
}

// --- SEND --------------------------------------------------------------------

Requester::Step Requester::HasReceive() const {
  const std::uint32_t posted = peer_->posted.load(std::memory_order_acquire);
  const std::uint32_t available =
      posted - peer_->completed.load(std::memory_order_relaxed);
  if (available == 0) {
    return Step::kNoReceive;
  }
  // More than a ring holds cannot be: the peer's memory is not sane.
  return available <= kMaxQueueDepth ? Step::kDone : Step::kNotReady;
}

ReceiveEntry& Requester::NextReceive() const {
  const std::uint32_t mask =
      peer_->ring_mask.load(std::memory_order_relaxed) & (kMaxQueueDepth - 1);
  const std::uint32_t completed =
      peer_->completed.load(std::memory_order_relaxed);
  return segment_->layout().receives[IndexOf(dest_qpn_)][completed & mask];
}

Requester::Step Requester::ExecuteSend(const Request& request,
                                       const Source& source,
                                       ibv_wc_status* status) {
  const ReceiveEntry& receive = NextReceive();
  const std::uint32_t sges = std::min(receive.sge_count, kMaxSge);
  const std::uint32_t pd = peer_->pd.load(std::memory_order_relaxed);
  RemoteRange target[kMaxSge];
  int ranges = 0;
  std::uint64_t left = source.bytes;
  bool allowed = true;
  for (std::uint32_t i = 0; i < sges && left > 0; ++i) {
    const ibv_sge sge = receive.sges[i];
    if (sge.length == 0) {
      continue;
    }
    RemoteRange& range = target[ranges++];
    range = {sge.addr, std::min<std::uint64_t>(sge.length, left),
             kPrivateMemory, sge.lkey, IBV_ACCESS_LOCAL_WRITE};
    allowed = allowed && CheckRegion(segment_->layout().regions, sge.lkey, pd,
                                     IBV_ACCESS_LOCAL_WRITE, sge.addr,
                                     sge.length, &range.offset);
    left -= range.bytes;
  }
  ibv_wc_status receive_status = IBV_WC_SUCCESS;
  *status = IBV_WC_SUCCESS;
  if (left > 0) {
    receive_status = IBV_WC_LOC_LEN_ERR;
    *status = IBV_WC_REM_INV_REQ_ERR;
  } else if (!allowed) {
    receive_status = IBV_WC_LOC_PROT_ERR;
    *status = IBV_WC_REM_OP_ERR;
  } else if (source.bytes > 0) {
    const Step step = Move(source, {target, static_cast<std::size_t>(ranges)});
    if (step == Step::kFailed) {
      receive_status = IBV_WC_LOC_PROT_ERR;
      *status = IBV_WC_REM_OP_ERR;
    } else if (step != Step::kDone) {
      return step;
    }
  }
  CompleteReceive(request, source.bytes, receive_status);
  if (*status != IBV_WC_SUCCESS) {
    FaultPeer(kFaultWithoutEvent);
    return Step::kFailed;
  }
  return Step::kDone;
}

void Requester::CompleteReceive(const Request& request, std::uint64_t bytes,
                                ibv_wc_status status) {
  ReceiveEntry& entry = NextReceive();
  entry.status = status;
  entry.opcode =
      IsSend(request.opcode) ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
  entry.byte_count = static_cast<std::uint32_t>(bytes);
  entry.immediate = request.immediate;
  entry.flags = HasImmediate(request.opcode) ? IBV_WC_WITH_IMM : 0;
  peer_->completed.store(peer_->completed.load(std::memory_order_relaxed) + 1,
                         std::memory_order_seq_cst);

  const std::uint32_t cq_index =
      peer_->recv_cq.load(std::memory_order_relaxed) % kMaxCompletionQueues;
  SharedCompletionQueue& cq = segment_->layout().completion_queues[cq_index];
  const std::uint32_t index = IndexOf(dest_qpn_);
  std::atomic<std::uint64_t>& ready = cq.ready[index / 64];
  const std::uint64_t bit = std::uint64_t{1} << index % 64;
  if ((ready.load(std::memory_order_seq_cst) & bit) == 0) {
    ready.fetch_or(bit, std::memory_order_seq_cst);
  }
  NotifyCompletion(
      cq, channel_fd_,
      status != IBV_WC_SUCCESS || (request.flags & IBV_SEND_SOLICITED) != 0);
}

// --- Moving bytes ------------------------------------------------------------

Requester::Step Requester::Move(const Source& source,
                                std::span<const RemoteRange> target) {
  const auto is_private = [](const RemoteRange& range) {
    return range.offset == kPrivateMemory;
  };
  if (link_->slots_only() &&
      std::any_of(target.begin(), target.end(), is_private)) {
    return MoveThroughSlots(source, target);
  }
  switch (CopyToPeer(*link_, source.span(), target)) {
    case CopyResult::kDone:
      return Step::kDone;
    case CopyResult::kFaulted:
      return Step::kFailed;
    case CopyResult::kGone:
      return Step::kNotReady;
    case CopyResult::kForbidden:
      break;
  }
  link_->UseSlots();
  return MoveThroughSlots(source, target);
}

Requester::Step Requester::MoveThroughSlots(
    const Source& source, std::span<const RemoteRange> target) {
  const bool filled_some = FillSlots(source, target);
  if (filled_some) {
    AlertPeer();
  }
  const bool all_done = slot_bytes_sent_ == source.bytes &&
                        peer_->slots_done.load(std::memory_order_acquire) ==
                            peer_->slots_filled.load(std::memory_order_relaxed);
  if (!all_done) {
    return Step::kInFlight;
  }
  slot_bytes_sent_ = 0;
  return peer_->slots_refused.load(std::memory_order_relaxed) == 0
             ? Step::kDone
             : Step::kFailed;
}

bool Requester::FillSlots(const Source& source,
                          std::span<const RemoteRange> target) {
  SourceCursor cursor(source.span());
  cursor.Skip(slot_bytes_sent_);
  std::uint64_t before = 0;  // bytes of the ranges before this one
  bool filled_some = false;
  for (const RemoteRange& range : target) {
    while (slot_bytes_sent_ < before + range.bytes) {
      const std::uint32_t filled =
          peer_->slots_filled.load(std::memory_order_relaxed);
      if (filled - peer_->slots_done.load(std::memory_order_acquire) >=
          kSlots) {
        return filled_some;
      }
      const std::uint64_t offset = slot_bytes_sent_ - before;
      const auto bytes = static_cast<std::uint32_t>(
          std::min<std::uint64_t>(kSlotBytes, range.bytes - offset));
      const std::uint32_t slot = filled % kSlots;
      cursor.CopyTo(segment_->layout().slots[IndexOf(dest_qpn_)][slot], bytes);
      peer_->slots[slot] = {range.address + offset, range.key, range.access,
                            bytes};
      peer_->slots_filled.store(filled + 1, std::memory_order_release);
      slot_bytes_sent_ += bytes;
      filled_some = true;
    }
    before += range.bytes;
  }
  return filled_some;
}

// --- Waking the peer ---------------------------------------------------------

void Requester::FaultPeer(std::uint32_t fault) {
  std::uint32_t none = 0;
  if (peer_->fault.compare_exchange_strong(none, fault)) {
    AlertPeer();
  }
}

void Requester::AlertPeer() {
  segment_->layout().attention.store(1, std::memory_order_seq_cst);
  link_->Ring();
}

}  // namespace ringpipe::verbs::soft
