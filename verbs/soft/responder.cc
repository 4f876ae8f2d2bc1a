// How an operation is executed on a responder. Hot path.
//
//   connected to us?                     else not ready: transport retries
//   busy -> odd                          the executor's hazard marker
//     state, incarnation ok?             else not ready
//     receive there?                     else RNR (SEND, WRITE with immediate)
//     keys, bounds, access, pd ok?       by the responder's region table
//     copy
//     entry, completed + 1, ready bit    the responder's completion
//     armed? then write its channel
//   busy -> even
//
// Whoever takes something away (deregister, ERR, reset) first says so in the
// segment and then waits for `busy` to be even or to change: both sides store
// first and load then, seq_cst, so that one of the two sees the other.
#include "verbs/soft/responder.h"

#include <algorithm>
#include <utility>

#include "verbs/soft/completion_queue.h"
#include "verbs/soft/region_table.h"

namespace ringpipe::verbs::soft {
namespace {

class BusyScope {
 public:
  explicit BusyScope(std::atomic<std::uint32_t>& busy) : busy_(busy) {
    // Odd already: an executor died here before.
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

}  // namespace

Responder::Responder(std::shared_ptr<PeerLink> link,
                     const SharedRegion* regions, int channel_fd,
                     const Identity& identity)
    : link_(std::move(link)),
      segment_(link_->segment()),
      shared_(segment_->layout().queue_pairs[IndexOf(identity.qpn)]),
      regions_(regions),
      channel_fd_(channel_fd),
      identity_(identity),
      index_(IndexOf(identity.qpn)) {}

std::uint32_t Responder::min_rnr_timer() const {
  return shared_.min_rnr_timer.load(std::memory_order_relaxed);
}

Step Responder::Execute(const Operation& operation, ibv_wc_status* status) {
  // Not even the marker is ours if the queue pair is connected to another.
  if (shared_.dest_qpn.load(std::memory_order_acquire) !=
          identity_.requester_qpn ||
      (shared_.dest_remote.load(std::memory_order_relaxed) != 0) !=
          identity_.remote) {
    return Step::kNotReady;
  }
  BusyScope busy(shared_.busy);
  if (!IsReady()) {
    return Step::kNotReady;
  }
  if (NeedsReceive(operation.opcode)) {
    if (const Step step = HasReceive(); step != Step::kDone) {
      return step;
    }
  }
  const Step step = IsSend(operation.opcode) ? ExecuteSend(operation, status)
                                             : ExecuteWrite(operation, status);
  unused_ = unused_ && step != Step::kDone;
  return step;
}

bool Responder::IsReady() {
  const std::uint32_t state = shared_.state.load(std::memory_order_seq_cst);
  const bool receives =
      state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD;
  if (!receives ||
      shared_.dest_qpn.load(std::memory_order_relaxed) !=
          identity_.requester_qpn ||
      shared_.recv_psn.load(std::memory_order_relaxed) != identity_.send_psn ||
      shared_.fault.load(std::memory_order_relaxed) != 0) {
    return false;
  }
  outdated_ = shared_.incarnation.load(std::memory_order_relaxed) !=
              identity_.incarnation;
  return !outdated_;
}

// --- RDMA WRITE --------------------------------------------------------------

Step Responder::ExecuteWrite(const Operation& operation,
                             ibv_wc_status* status) {
  const std::uint64_t address = operation.remote_address + operation.offset;
  RemoteRange target = {address, operation.bytes, kPrivateMemory,
                        operation.rkey, IBV_ACCESS_REMOTE_WRITE};
  const bool enabled = (shared_.access.load(std::memory_order_relaxed) &
                        IBV_ACCESS_REMOTE_WRITE) != 0;
  // A write of nothing needs no key.
  const bool allowed =
      enabled &&
      (operation.bytes == 0 ||
       CheckRegion(
           regions_, operation.rkey, shared_.pd.load(std::memory_order_relaxed),
           IBV_ACCESS_REMOTE_WRITE, address, operation.bytes, &target.offset));
  Step step = allowed ? Step::kDone : Step::kFailed;
  if (allowed && operation.bytes > 0) {
    step = Move(operation.local, operation.bytes, {&target, 1});
  }
  if (step == Step::kFailed) {
    Fault(IBV_EVENT_QP_ACCESS_ERR + 1);
    *status = IBV_WC_REM_ACCESS_ERR;
  } else if (step == Step::kDone && HasImmediate(operation.opcode) &&
             operation.is_last()) {
    CompleteReceive(operation, IBV_WC_SUCCESS);
  }
  return step;
}

// --- SEND --------------------------------------------------------------------

Step Responder::HasReceive() const {
  const std::uint32_t posted = shared_.posted.load(std::memory_order_acquire);
  const std::uint32_t available =
      posted - shared_.completed.load(std::memory_order_relaxed);
  if (available == 0) {
    return Step::kNoReceive;
  }
  // More than a ring holds cannot be: the peer's memory is not sane.
  return available <= kMaxQueueDepth ? Step::kDone : Step::kNotReady;
}

ReceiveEntry& Responder::NextReceive() const {
  const std::uint32_t mask =
      shared_.ring_mask.load(std::memory_order_relaxed) & (kMaxQueueDepth - 1);
  const std::uint32_t completed =
      shared_.completed.load(std::memory_order_relaxed);
  return segment_->layout().receives[index_][completed & mask];
}

// Where the fragment goes in the memory of `receive`: up to kMaxSge ranges.
ibv_wc_status Responder::Scatter(const ReceiveEntry& receive,
                                 const Operation& operation,
                                 RemoteRange* target, int* ranges) const {
  const std::uint32_t sges = std::min(receive.sge_count, kMaxSge);
  std::uint64_t room = 0;
  for (std::uint32_t i = 0; i < sges; ++i) {
    room += receive.sges[i].length;
  }
  if (room < operation.message_bytes) {
    return IBV_WC_LOC_LEN_ERR;
  }
  const std::uint32_t pd = shared_.pd.load(std::memory_order_relaxed);
  std::uint64_t skip = operation.offset;
  std::uint64_t left = operation.bytes;
  for (std::uint32_t i = 0; i < sges && left > 0; ++i) {
    const ibv_sge sge = receive.sges[i];
    if (skip >= sge.length) {
      skip -= sge.length;
      continue;
    }
    RemoteRange& range = target[(*ranges)++];
    range = {sge.addr + skip, std::min<std::uint64_t>(sge.length - skip, left),
             kPrivateMemory, sge.lkey, IBV_ACCESS_LOCAL_WRITE};
    if (!CheckRegion(regions_, sge.lkey, pd, IBV_ACCESS_LOCAL_WRITE,
                     range.address, range.bytes, &range.offset)) {
      return IBV_WC_LOC_PROT_ERR;
    }
    left -= range.bytes;
    skip = 0;
  }
  return left == 0 ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR;
}

Step Responder::ExecuteSend(const Operation& operation, ibv_wc_status* status) {
  RemoteRange target[kMaxSge];
  int ranges = 0;
  ibv_wc_status received = Scatter(NextReceive(), operation, target, &ranges);
  if (received == IBV_WC_SUCCESS && operation.bytes > 0) {
    const Step step = Move(operation.local, operation.bytes,
                           {target, static_cast<std::size_t>(ranges)});
    if (step == Step::kFailed) {
      received = IBV_WC_LOC_PROT_ERR;
    } else if (step != Step::kDone) {
      return step;
    }
  }
  if (received != IBV_WC_SUCCESS || operation.is_last()) {
    CompleteReceive(operation, received);
  }
  if (received == IBV_WC_SUCCESS) {
    return Step::kDone;
  }
  *status = received == IBV_WC_LOC_LEN_ERR ? IBV_WC_REM_INV_REQ_ERR
                                           : IBV_WC_REM_OP_ERR;
  Fault(kFaultWithoutEvent);
  return Step::kFailed;
}

void Responder::CompleteReceive(const Operation& operation,
                                ibv_wc_status status) {
  ReceiveEntry& entry = NextReceive();
  entry.status = status;
  entry.opcode =
      IsSend(operation.opcode) ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
  entry.byte_count = static_cast<std::uint32_t>(operation.message_bytes);
  entry.immediate = operation.immediate;
  entry.flags = HasImmediate(operation.opcode) ? IBV_WC_WITH_IMM : 0;
  shared_.completed.store(shared_.completed.load(std::memory_order_relaxed) + 1,
                          std::memory_order_seq_cst);

  const std::uint32_t cq_index =
      shared_.recv_cq.load(std::memory_order_relaxed) % kMaxCompletionQueues;
  SharedCompletionQueue& cq = segment_->layout().completion_queues[cq_index];
  std::atomic<std::uint64_t>& ready = cq.ready[index_ / 64];
  const std::uint64_t bit = std::uint64_t{1} << index_ % 64;
  if ((ready.load(std::memory_order_seq_cst) & bit) == 0) {
    ready.fetch_or(bit, std::memory_order_seq_cst);
  }
  NotifyCompletion(cq, channel_fd_,
                   status != IBV_WC_SUCCESS || operation.solicited);
}

// --- Moving bytes ------------------------------------------------------------

Step Responder::Move(std::span<const iovec> source, std::uint64_t bytes,
                     std::span<const RemoteRange> target) {
  const auto is_private = [](const RemoteRange& range) {
    return range.offset == kPrivateMemory;
  };
  if (link_->slots_only() &&
      std::any_of(target.begin(), target.end(), is_private)) {
    return MoveThroughSlots(source, bytes, target);
  }
  switch (CopyToPeer(*link_, source, target)) {
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
  return MoveThroughSlots(source, bytes, target);
}

Step Responder::MoveThroughSlots(std::span<const iovec> source,
                                 std::uint64_t bytes,
                                 std::span<const RemoteRange> target) {
  if (FillSlots(source, target)) {
    Alert();
  }
  const bool all_done =
      slot_bytes_sent_ == bytes &&
      shared_.slots_done.load(std::memory_order_acquire) ==
          shared_.slots_filled.load(std::memory_order_relaxed);
  if (!all_done) {
    return Step::kInFlight;
  }
  slot_bytes_sent_ = 0;
  return shared_.slots_refused.load(std::memory_order_relaxed) == 0
             ? Step::kDone
             : Step::kFailed;
}

bool Responder::FillSlots(std::span<const iovec> source,
                          std::span<const RemoteRange> target) {
  SourceCursor cursor(source);
  cursor.Skip(slot_bytes_sent_);
  std::uint64_t before = 0;  // bytes of the ranges before this one
  bool filled_some = false;
  for (const RemoteRange& range : target) {
    while (slot_bytes_sent_ < before + range.bytes) {
      const std::uint32_t filled =
          shared_.slots_filled.load(std::memory_order_relaxed);
      if (filled - shared_.slots_done.load(std::memory_order_acquire) >=
          kSlots) {
        return filled_some;
      }
      const std::uint64_t offset = slot_bytes_sent_ - before;
      const auto bytes = static_cast<std::uint32_t>(
          std::min<std::uint64_t>(kSlotBytes, range.bytes - offset));
      const std::uint32_t slot = filled % kSlots;
      cursor.CopyTo(segment_->layout().slots[index_][slot], bytes);
      shared_.slots[slot] = {range.address + offset, range.key, range.access,
                             bytes};
      shared_.slots_filled.store(filled + 1, std::memory_order_release);
      slot_bytes_sent_ += bytes;
      filled_some = true;
    }
    before += range.bytes;
  }
  return filled_some;
}

// --- Waking the peer ---------------------------------------------------------

void Responder::Fault(std::uint32_t fault) {
  std::uint32_t none = 0;
  if (shared_.fault.compare_exchange_strong(none, fault)) {
    Alert();
  }
}

void Responder::Alert() {
  segment_->layout().attention.store(1, std::memory_order_seq_cst);
  link_->Ring();
}

}  // namespace ringpipe::verbs::soft
