// How an operation is executed on a responder. Hot path.
//
//   connected to us?                     else not ready: transport retries
//   busy -> odd                          the executor's hazard marker
//     state, incarnation ok?             else not ready
//     receive there?                     else RNR (SEND, WRITE with immediate)
//     keys, bounds, access, pd ok?       by the responder's region table
//     copy, or update
//     entry, completed + 1, ready bit    the responder's completion
//     armed? then write its channel
//   busy -> even
//
// A receive of a shared receive queue is first claimed into the responder's own
// ring, where it stays claimed if the operation is in flight or ends there.
//
// Whoever takes something away (deregister, ERR, reset) first says so in the
// segment and then waits for `busy` to be even or to change: both sides store
// first and load then, seq_cst, so that one of the two sees the other.
#include "verbs/soft/responder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "verbs/soft/atomic_operation.h"
#include "verbs/soft/completion_queue.h"
#include "verbs/soft/region_table.h"
#include "verbs/soft/shared_receive_queue.h"

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

Responder::Responder(std::shared_ptr<PeerLink> link, const OwnedRegion* regions,
                     int channel_fd, const Identity& identity)
    : link_(std::move(link)),
      segment_(link_->segment()),
      owned_(segment_->owned().queue_pairs[IndexOf(identity.qpn)]),
      shared_(segment_->shared().queue_pairs[IndexOf(identity.qpn)]),
      regions_(regions),
      channel_fd_(channel_fd),
      identity_(identity),
      index_(IndexOf(identity.qpn)),
      slots_(owned_, shared_, segment_->shared().slots[index_]) {}

std::uint32_t Responder::min_rnr_timer() const {
  return owned_.min_rnr_timer.load(std::memory_order_relaxed);
}

Step Responder::Execute(const Operation& operation, ibv_wc_status* status) {
  // Not even the marker is ours if the queue pair is connected to another.
  if (owned_.dest_qpn.load(std::memory_order_acquire) !=
          identity_.requester_qpn ||
      (owned_.dest_remote.load(std::memory_order_relaxed) != 0) !=
          identity_.remote) {
    return Step::kNotReady;
  }
  BusyScope busy(shared_.busy);
  if (!IsReady(operation.accepted)) {
    return Step::kNotReady;
  }
  if (operation.offset > operation.message_bytes ||
      operation.bytes > operation.message_bytes - operation.offset) {
    return Refuse(IBV_WC_REM_INV_REQ_ERR, status);
  }
  const Step step = ExecuteReady(operation, status);
  unused_ = unused_ && step != Step::kDone;
  return step;
}

Step Responder::ExecuteReady(const Operation& operation,
                             ibv_wc_status* status) {
  if (NeedsReceive(operation.opcode)) {
    if (const Step step = HasReceive(); step != Step::kDone) {
      return step;
    }
  }
  if (IsSend(operation.opcode)) {
    return ExecuteSend(operation, status);
  }
  if (IsWrite(operation.opcode)) {
    return ExecuteWrite(operation, status);
  }
  // What it never promised to answer is invalid.
  if (identity_.type != IBV_QPT_RC ||
      owned_.max_dest_rd_atomic.load(std::memory_order_relaxed) == 0) {
    return Refuse(IBV_WC_REM_INV_REQ_ERR, status);
  }
  return IsAtomic(operation.opcode) ? ExecuteAtomic(operation, status)
                                    : ExecuteRead(operation, status);
}

bool Responder::IsReady(bool accepted) {
  const std::uint32_t state = owned_.state.load(std::memory_order_seq_cst);
  const bool receives = state == IBV_QPS_RTR || state == IBV_QPS_RTS ||
                        state == IBV_QPS_SQD || state == IBV_QPS_SQE;
  // UC takes any packet sequence number for the beginning of a message.
  const bool in_sequence =
      identity_.type == IBV_QPT_UC ||
      owned_.recv_psn.load(std::memory_order_relaxed) == identity_.send_psn;
  if (!receives || !in_sequence ||
      owned_.type.load(std::memory_order_relaxed) !=
          static_cast<std::uint32_t>(identity_.type) ||
      owned_.dest_qpn.load(std::memory_order_relaxed) !=
          identity_.requester_qpn ||
      (!accepted && shared_.fault.load(std::memory_order_relaxed) != 0)) {
    return false;
  }
  outdated_ = owned_.incarnation.load(std::memory_order_relaxed) !=
              identity_.incarnation;
  return !outdated_;
}

// --- RDMA and atomics --------------------------------------------------------

// Whether the whole message may access what it names; `range` is then what the
// fragment does. A message of nothing needs no key.
ibv_wc_status Responder::CheckRemote(const Operation& operation,
                                     std::uint32_t access,
                                     RemoteRange* range) const {
  if ((owned_.access.load(std::memory_order_relaxed) & access) == 0) {
    return IBV_WC_REM_INV_REQ_ERR;  // the queue pair does not support it
  }
  *range = {operation.remote_address + operation.offset,
            operation.bytes,
            operation.rkey,
            access,
            {}};
  if (operation.message_bytes == 0) {
    return IBV_WC_SUCCESS;
  }
  if (!CheckRegion(regions_, operation.rkey,
                   owned_.pd.load(std::memory_order_relaxed), access,
                   operation.remote_address, operation.message_bytes,
                   &range->place)) {
    return IBV_WC_REM_ACCESS_ERR;
  }
  range->place.address += operation.offset;
  if (range->place.offset != kPrivateMemory) {
    range->place.offset += operation.offset;
  }
  return IBV_WC_SUCCESS;
}

Step Responder::ExecuteWrite(const Operation& operation,
                             ibv_wc_status* status) {
  RemoteRange target;
  const ibv_wc_status checked =
      CheckRemote(operation, IBV_ACCESS_REMOTE_WRITE, &target);
  if (checked != IBV_WC_SUCCESS) {
    return Refuse(checked, status);
  }
  const Step step = operation.bytes == 0
                        ? Step::kDone
                        : Move(Direction::kToPeer, operation, {&target, 1});
  if (step == Step::kFailed) {
    return Refuse(IBV_WC_REM_ACCESS_ERR, status);
  }
  if (step == Step::kDone && HasImmediate(operation.opcode) &&
      operation.is_last()) {
    CompleteReceive(operation, IBV_WC_SUCCESS);
  }
  return step;
}

Step Responder::ExecuteRead(const Operation& operation, ibv_wc_status* status) {
  RemoteRange source;
  const ibv_wc_status checked =
      CheckRemote(operation, IBV_ACCESS_REMOTE_READ, &source);
  if (checked != IBV_WC_SUCCESS) {
    return Refuse(checked, status);
  }
  const Step step = operation.bytes == 0
                        ? Step::kDone
                        : Move(Direction::kFromPeer, operation, {&source, 1});
  return step == Step::kFailed ? Refuse(IBV_WC_REM_ACCESS_ERR, status) : step;
}

Step Responder::ExecuteAtomic(const Operation& operation,
                              ibv_wc_status* status) {
  constexpr std::uint64_t kBytes = sizeof(std::uint64_t);
  RemoteRange range;
  ibv_wc_status checked =
      operation.message_bytes == kBytes && operation.bytes == kBytes
          ? CheckRemote(operation, IBV_ACCESS_REMOTE_ATOMIC, &range)
          : IBV_WC_REM_INV_REQ_ERR;
  if (checked == IBV_WC_SUCCESS && operation.remote_address % kBytes != 0) {
    checked = IBV_WC_REM_INV_REQ_ERR;
  }
  if (checked != IBV_WC_SUCCESS) {
    return Refuse(checked, status);
  }
  AtomicResult result = AtomicResult::kForbidden;
  if (!link_->slots_only() || range.place.offset != kPrivateMemory) {
    std::uint64_t old;
    bool wake_owner = false;
    // The number of a requester elsewhere may be that of one here as well.
    const std::uint32_t holder =
        identity_.remote ? kAtomicLockOwner : identity_.requester_qpn;
    result = ExecuteAtomicAcross(
        *link_, range,
        {operation.opcode, operation.compare_add, operation.swap}, holder, &old,
        &wake_owner);
    if (wake_owner) {
      Alert();
    }
    if (result == AtomicResult::kDone) {
      RangeCursor(operation.local)
          .CopyFrom(reinterpret_cast<const std::byte*>(&old), kBytes);
    }
  }
  Step step = Step::kDone;
  if (result == AtomicResult::kForbidden) {
    link_->UseSlots();
    step = MoveThroughSlots(operation, {&range, 1});
  }
  if (result == AtomicResult::kFaulted || step == Step::kFailed) {
    return Refuse(IBV_WC_REM_ACCESS_ERR, status);
  }
  if (result == AtomicResult::kGone) {
    return Step::kNotReady;
  }
  return result == AtomicResult::kBusy ? Step::kInFlight : step;
}

Step Responder::Refuse(ibv_wc_status refusal, ibv_wc_status* status) {
  *status = refusal;
  if (identity_.type == IBV_QPT_RC) {
    Fault((refusal == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR
                                            : IBV_EVENT_QP_REQ_ERR) +
          1);
  }
  return Step::kFailed;
}

// --- SEND --------------------------------------------------------------------

Step Responder::HasReceive() {
  if (owned_.shared_receives.load(std::memory_order_relaxed) != 0) {
    bool few_left = false;
    const bool taken = TakeSharedReceive(segment_->owned(), segment_->shared(),
                                         index_, &few_left);
    if (few_left) {
      Alert();
    }
    return taken ? Step::kDone : Step::kNoReceive;
  }
  const std::uint32_t posted = owned_.posted.load(std::memory_order_acquire);
  const std::uint32_t available =
      posted - shared_.completed.load(std::memory_order_relaxed);
  if (available == 0) {
    return Step::kNoReceive;
  }
  // More than a ring holds cannot be: the peer's memory is not sane.
  return available <= kMaxQueueDepth ? Step::kDone : Step::kNotReady;
}

std::uint32_t Responder::ReceivePd() const {
  const std::uint32_t shared_index =
      owned_.shared_receives.load(std::memory_order_relaxed);
  return shared_index == 0
             ? owned_.pd.load(std::memory_order_relaxed)
             : segment_->owned()
                   .receive_rings[(shared_index - 1) % kMaxSharedReceiveQueues]
                   .pd.load(std::memory_order_relaxed);
}

// In the queue pair's rings.
std::uint32_t Responder::NextIndex() const {
  return shared_.completed.load(std::memory_order_relaxed) &
         owned_.ring_mask.load(std::memory_order_relaxed) &
         (kMaxQueueDepth - 1);
}

const ScatterList& Responder::NextReceive() const {
  const std::uint32_t shared_index =
      owned_.shared_receives.load(std::memory_order_relaxed);
  if (shared_index == 0) {
    return segment_->owned().receives[index_][NextIndex()];
  }
  const ReceiveCompletion& claimed =
      segment_->shared().completions[index_][NextIndex()];
  return segment_->owned()
      .receive_rings[(shared_index - 1) % kMaxSharedReceiveQueues]
      .receives[claimed.shared_receive % kMaxQueueDepth];
}

// Where the fragment goes in the memory of `receive`: up to kMaxSge ranges.
ibv_wc_status Responder::Scatter(const ScatterList& receive,
                                 const Operation& operation,
                                 RemoteRange* target, int* ranges) const {
  const std::uint32_t sges = std::min(receive.count, kMaxSge);
  std::uint64_t room = 0;
  for (std::uint32_t i = 0; i < sges; ++i) {
    room += receive.sges[i].length;
  }
  if (room < operation.message_bytes) {
    return IBV_WC_LOC_LEN_ERR;
  }
  const std::uint32_t pd = ReceivePd();
  std::uint64_t skip = operation.offset;
  std::uint64_t left = operation.bytes;
  for (std::uint32_t i = 0; i < sges && left > 0; ++i) {
    const ibv_sge sge = receive.sges[i];
    if (skip >= sge.length) {
      skip -= sge.length;
      continue;
    }
    RemoteRange& range = target[(*ranges)++];
    range = {sge.addr + skip,
             std::min<std::uint64_t>(sge.length - skip, left),
             sge.lkey,
             IBV_ACCESS_LOCAL_WRITE,
             {}};
    if (!CheckRegion(regions_, sge.lkey, pd, IBV_ACCESS_LOCAL_WRITE,
                     range.address, range.bytes, &range.place)) {
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
    const Step step = Move(Direction::kToPeer, operation,
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
  ReceiveCompletion& completion =
      segment_->shared().completions[index_][NextIndex()];
  completion.status = status;
  completion.opcode =
      IsSend(operation.opcode) ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
  completion.byte_count = static_cast<std::uint32_t>(operation.message_bytes);
  completion.immediate = operation.immediate;
  completion.flags = HasImmediate(operation.opcode) ? IBV_WC_WITH_IMM : 0;
  completion.src_qpn = 0;
  completion.slid = completion.service_level = 0;
  shared_.completed.store(shared_.completed.load(std::memory_order_relaxed) + 1,
                          std::memory_order_seq_cst);

  const std::uint32_t cq_index =
      owned_.recv_cq.load(std::memory_order_relaxed) % kMaxCompletionQueues;
  SharedCompletionQueue& cq = segment_->shared().completion_queues[cq_index];
  std::atomic<std::uint64_t>& ready = cq.ready[index_ / 64];
  const std::uint64_t bit = std::uint64_t{1} << index_ % 64;
  if ((ready.load(std::memory_order_seq_cst) & bit) == 0) {
    ready.fetch_or(bit, std::memory_order_seq_cst);
  }
  NotifyCompletion(cq, channel_fd_,
                   status != IBV_WC_SUCCESS || operation.solicited);
}

// --- Moving bytes ------------------------------------------------------------

Step Responder::Move(Direction direction, const Operation& operation,
                     std::span<const RemoteRange> remote) {
  const auto is_private = [](const RemoteRange& range) {
    return range.place.offset == kPrivateMemory;
  };
  if (slots_.active() ||
      (link_->slots_only() &&
       std::any_of(remote.begin(), remote.end(), is_private))) {
    return MoveThroughSlots(operation, remote);
  }
  switch (CopyAcross(direction, *link_, operation.local, remote)) {
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
  return MoveThroughSlots(operation, remote);
}

Step Responder::MoveThroughSlots(const Operation& operation,
                                 std::span<const RemoteRange> remote) {
  bool wake = false;
  const Step step = slots_.Run(operation, remote, &wake);
  if (wake) {
    Alert();
  }
  return step;
}

// --- Waking the peer ---------------------------------------------------------

void Responder::Fault(std::uint32_t fault) {
  std::uint32_t none = 0;
  if (shared_.fault.compare_exchange_strong(none, fault)) {
    Alert();
  }
}

void Responder::Alert() {
  segment_->shared().attention.store(1, std::memory_order_seq_cst);
  link_->Ring();
}

}  // namespace ringpipe::verbs::soft
