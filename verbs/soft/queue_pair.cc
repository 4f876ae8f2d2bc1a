#include "verbs/soft/queue_pair.h"

#include <errno.h>
#include <sched.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "verbs/soft/context.h"
#include "verbs/soft/transitions.h"

namespace ringpipe::verbs::soft {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFlushRetry{1};
constexpr std::uint32_t kPsnMask = 0xffffff;

}  // namespace

QueuePair::QueuePair(Context* context, std::uint32_t index,
                     ProtectionDomain* pd, const ibv_qp_init_attr& attr,
                     std::uint64_t adversary_seed)
    : ibv_qp_ex{},
      context_(context),
      index_(index),
      pd_id_(pd->id),
      owned_(context->owned().queue_pairs[index]),
      shared_(context->shared().queue_pairs[index]),
      init_attr_(attr),
      adversary_(adversary_seed, index),
      send_queue_(context, this, attr.cap, attr.sq_sig_all != 0),
      requester_(context, this, &send_queue_, &retries_),
      receives_({owned_, shared_, context->owned().receives[index],
                 context->shared().completions[index]},
                context->Qpn(index), attr.cap.max_recv_wr,
                attr.cap.max_recv_sge,
                attr.srq == nullptr
                    ? nullptr
                    : SharedReceiveQueue::From(attr.srq).shared_from_this()) {
  qp_base.context = &context->verbs();
  qp_base.qp_context = attr.qp_context;
  qp_base.pd = pd;
  qp_base.send_cq = attr.send_cq;
  qp_base.recv_cq = attr.recv_cq;
  qp_base.srq = attr.srq;
  qp_base.handle = index;
  qp_base.qp_num = context->Qpn(index);
  qp_base.qp_type = attr.qp_type;
  qp_base.state = IBV_QPS_RESET;
  owned_.pd = pd_id_;
  owned_.type = attr.qp_type;
  owned_.recv_cq = receive_queue_cq().index();
  Reset();
}

void QueuePair::SetState(ibv_qp_state state) {
  state_.store(state);
  owned_.state.store(state, std::memory_order_seq_cst);
}

// --- State machine -----------------------------------------------------------

int QueuePair::Modify(const ibv_qp_attr& attr, int mask) {
  std::unique_lock lock(mutex_);
  const ibv_qp_state from = current_state();
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attr.qp_state : from;
  if (!IsValidTransition(type(), from, to, mask)) {
    return EINVAL;
  }
  if (const int error = CheckValues(attr, mask); error != 0) {
    return error;
  }
  if (to == IBV_QPS_RESET) {
    lock.unlock();
    const int error = Reset();
    qp_base.state = current_state();
    return error;
  }
  StoreAttributes(attr, mask);
  if (from == IBV_QPS_INIT && to == IBV_QPS_RTR && type() != IBV_QPT_UD) {
    if (const int error = ConnectToPeer(); error != 0) {
      return error;
    }
  }
  if (to == IBV_QPS_ERR) {
    EnterErrorState();
  } else {
    SetState(to);
  }
  if (from == IBV_QPS_RTS && to == IBV_QPS_SQD &&
      attr.en_sqd_async_notify != 0 &&
      (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0) {
    context_->async_events().RaiseForQueuePair(verbs(), IBV_EVENT_SQ_DRAINED);
  }
  qp_base.state = to;
  ProgressLocked(Trigger::kCall);
  return 0;
}

int QueuePair::CheckValues(const ibv_qp_attr& attr, int mask) const {
  const auto is = [mask](int bit) { return (mask & bit) != 0; };
  const bool wrong =
      (is(IBV_QP_CUR_STATE) && attr.cur_qp_state != current_state()) ||
      (is(IBV_QP_PORT) && attr.port_num != 1) ||
      (is(IBV_QP_PKEY_INDEX) && attr.pkey_index != 0) ||
      (is(IBV_QP_QKEY) && type() != IBV_QPT_UD) ||
      (is(IBV_QP_PATH_MTU) &&
       (attr.path_mtu < IBV_MTU_256 || attr.path_mtu > IBV_MTU_4096)) ||
      (is(IBV_QP_DEST_QPN) && attr.dest_qp_num >> 24 != 0) ||
      (is(IBV_QP_TIMEOUT) && attr.timeout > 31) ||
      (is(IBV_QP_RETRY_CNT) && attr.retry_cnt > 7) ||
      (is(IBV_QP_RNR_RETRY) && attr.rnr_retry > 7) ||
      (is(IBV_QP_MIN_RNR_TIMER) && attr.min_rnr_timer > 31) ||
      (is(IBV_QP_MAX_QP_RD_ATOMIC) && attr.max_rd_atomic > kMaxRdAtomic) ||
      (is(IBV_QP_MAX_DEST_RD_ATOMIC) &&
       attr.max_dest_rd_atomic > kMaxRdAtomic) ||
      is(IBV_QP_ALT_PATH) || is(IBV_QP_PATH_MIG_STATE);
  if (wrong) {
    return EINVAL;
  }
  if (is(IBV_QP_AV)) {
    const std::optional<ibv_gid> address =
        context_->port().Destination(attr.ah_attr);
    if (!address) {
      return EINVAL;
    }
    if (const int error = context_->network().Check(*address); error != 0) {
      return error;
    }
  }
  return 0;
}

void QueuePair::StoreAttributes(const ibv_qp_attr& attr, int mask) {
  const auto is = [mask](int bit) { return (mask & bit) != 0; };
  if (is(IBV_QP_ACCESS_FLAGS)) attr_.qp_access_flags = attr.qp_access_flags;
  if (is(IBV_QP_PKEY_INDEX)) attr_.pkey_index = attr.pkey_index;
  if (is(IBV_QP_QKEY)) attr_.qkey = attr.qkey;
  if (is(IBV_QP_PORT)) attr_.port_num = attr.port_num;
  if (is(IBV_QP_AV)) attr_.ah_attr = attr.ah_attr;
  if (is(IBV_QP_PATH_MTU)) attr_.path_mtu = attr.path_mtu;
  if (is(IBV_QP_DEST_QPN)) attr_.dest_qp_num = attr.dest_qp_num;
  if (is(IBV_QP_RQ_PSN)) attr_.rq_psn = attr.rq_psn;
  if (is(IBV_QP_SQ_PSN)) attr_.sq_psn = attr.sq_psn;
  if (is(IBV_QP_TIMEOUT)) attr_.timeout = attr.timeout;
  if (is(IBV_QP_RETRY_CNT)) attr_.retry_cnt = attr.retry_cnt;
  if (is(IBV_QP_RNR_RETRY)) attr_.rnr_retry = attr.rnr_retry;
  if (is(IBV_QP_MIN_RNR_TIMER)) attr_.min_rnr_timer = attr.min_rnr_timer;
  if (is(IBV_QP_MAX_QP_RD_ATOMIC)) attr_.max_rd_atomic = attr.max_rd_atomic;
  if (is(IBV_QP_MAX_DEST_RD_ATOMIC)) {
    attr_.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  }
  owned_.access = attr_.qp_access_flags;
  owned_.dest_qpn = attr_.dest_qp_num;
  owned_.min_rnr_timer = attr_.min_rnr_timer;
  owned_.max_dest_rd_atomic = attr_.max_dest_rd_atomic;
  owned_.recv_psn = attr_.rq_psn & kPsnMask;
  requester_.SetSendPsn(attr_.sq_psn & kPsnMask);
  retries_.Set(attr_.timeout, attr_.retry_cnt, attr_.rnr_retry);
  if (remote_ != nullptr) {
    remote_->SetSend(attr_.sq_psn & kPsnMask, attr_.max_rd_atomic);
  }
}

// A peer is on this host if its address is, and its context is to be found
// here. Where it is not, it may be on what is to be another host: if contexts
// may believe that they are on others, and can prove who they are.
int QueuePair::ConnectToPeer() {
  const std::optional<ibv_gid> address =
      context_->port().Destination(attr_.ah_attr);
  if (!address) {
    return EINVAL;  // the GID has just gone
  }
  const QueuePairAddress peer = {*address, attr_.dest_qp_num};
  const bool local = context_->port().IsLocal(peer.gid) &&
                     (context_->LinkTo(BlockOf(peer.qpn)) != nullptr ||
                      !context_->network().ReachesThisHost());
  owned_.dest_remote = local ? 0 : 1;
  if (local) {
    requester_.Connect(peer.qpn);
    return 0;
  }
  const ibv_comp_channel* channel = qp_base.recv_cq->channel;
  Responder responder(
      PeerLink::ToSelf(context_->shared_segment(),
                       [context = context_] { context->WakeHousekeeper(); }),
      context_->regions(), channel != nullptr ? channel->fd : -1,
      {.qpn = number(),
       .incarnation = owned_.incarnation,
       .requester_qpn = peer.qpn,
       .send_psn = owned_.recv_psn,
       .type = type(),
       .remote = true});
  remote_ = std::make_shared<RemotePeer>(
      this, &send_queue_, &retries_,
      QueuePairAddress{context_->port().Source(attr_.ah_attr), number()}, peer,
      owned_.recv_psn, std::move(responder));
  const int error = context_->network().Connect(remote_, index_);
  if (error != 0) {
    remote_.reset();
    owned_.dest_remote = 0;
  }
  return error;
}

std::shared_ptr<RemotePeer> QueuePair::FindRemote(
    const QueuePairAddress& address) {
  std::lock_guard lock(mutex_);
  const ibv_qp_state now = current_state();
  const bool receives = now == IBV_QPS_RTR || now == IBV_QPS_RTS ||
                        now == IBV_QPS_SQD || now == IBV_QPS_SQE;
  return receives && remote_ != nullptr && remote_->peer() == address ? remote_
                                                                      : nullptr;
}

PeerLoss QueuePair::DescribeLoss() {
  std::lock_guard lock(mutex_);
  return remote_ == nullptr ? PeerLoss()
                            : remote_->DescribeLoss(context_->network());
}

const Options& QueuePair::options() const { return context_->options(); }

bool QueuePair::Shut() {
  {
    std::lock_guard lock(mutex_);
    SetState(IBV_QPS_RESET);
    requester_.Reset();
    if (remote_ != nullptr) {
      remote_->Close();
      remote_.reset();
    }
    send_queue_.Reset();
    retries_.Clear();
    ProgressLocked(Trigger::kCall);
  }
  // Not under the mutex: the housekeeper, which ends the wait when the peer
  // has died, may need it for another reason.
  const bool alone = context_->WaitForPeer(index_);
  std::lock_guard lock(slots_mutex_);
  return alone;
}

int QueuePair::Reset() {
  if (!Shut()) {
    std::lock_guard lock(mutex_);
    EnterErrorState();
    ProgressLocked(Trigger::kCall);
    return EBUSY;
  }
  std::lock_guard lock(mutex_);
  // A poll in another thread sees all of it or nothing.
  send_queue_cq().Detach(this);
  receive_queue_cq().Detach(this);
  send_queue_.Reset();
  attr_ = {};
  attr_.port_num = 1;
  owned_.dest_qpn = 0;
  owned_.access = 0;
  shared_.fault = 0;
  shared_.slots_filled = 0;
  owned_.slots_done = 0;
  owned_.incarnation.fetch_add(1);
  receives_.Reset();
  send_queue_cq().Attach(this);
  receive_queue_cq().Attach(this);
  return 0;
}

void QueuePair::Query(ibv_qp_attr* attr, ibv_qp_init_attr* init_attr) {
  HandleFault();
  std::lock_guard lock(mutex_);
  qp_base.state = current_state();
  *attr = attr_;
  attr->qp_state = attr->cur_qp_state = qp_base.state;
  attr->path_mig_state = IBV_MIG_MIGRATED;
  attr->cap = init_attr_.cap;
  if (init_attr != nullptr) {
    *init_attr = init_attr_;
  }
}

// --- Posting and progress ----------------------------------------------------

int QueuePair::PostSend(ibv_send_wr* requests, ibv_send_wr** bad,
                        bool all_or_none) {
  if (shared_.fault.load(std::memory_order_relaxed) != 0) {
    HandleFault();
  }
  std::lock_guard lock(mutex_);
  const ibv_qp_state now = current_state();
  if (now != IBV_QPS_RTS && now != IBV_QPS_ERR && now != IBV_QPS_SQD &&
      now != IBV_QPS_SQE) {
    *bad = requests;
    return EINVAL;
  }
  int error = all_or_none ? send_queue_.CheckAll(requests) : 0;
  if (error == 0) {
    error = send_queue_.Post(requests, bad);
  }
  ProgressLocked(Trigger::kCall);
  return error;
}

int QueuePair::PostReceive(ibv_recv_wr* requests, ibv_recv_wr** bad) {
  if (current_state() == IBV_QPS_RESET || qp_base.srq != nullptr) {
    *bad = requests;
    return EINVAL;
  }
  const int error = receives_.Post(requests, bad);
  if (receives_.flushed()) {
    receive_queue_cq().ReceivesReady(index_, /*solicited=*/true);
  }
  return error;
}

Clock::time_point QueuePair::ProgressByTimer() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) {
    return Clock::now() + kFlushRetry;  // somebody is at it
  }
  return ProgressLocked(Trigger::kTimer);
}

void QueuePair::ProgressByPoll() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) {
    ProgressLocked(Trigger::kPoll);
  }
}

Clock::time_point QueuePair::ProgressLocked(Trigger trigger) {
  Clock::time_point again = remote_ != nullptr ? remote_->Progress(trigger)
                                               : requester_.Progress(trigger);
  // After the send side, so that the error that began it is seen first.
  if (current_state() == IBV_QPS_ERR && !receives_.flushed()) {
    TryFlushReceives();
    if (!receives_.flushed()) {
      again = std::min(again, Clock::now() + kFlushRetry);
    }
  }
  const bool stalled = again != Clock::time_point::max();
  if (stalled != stalled_) {
    stalled_ = stalled;
    context_->SetStalled(index_, stalled);
  }
  if (stalled && trigger != Trigger::kTimer) {
    context_->NeedTimer(again);
  }
  return again;
}

// --- Errors ------------------------------------------------------------------

void QueuePair::EnterErrorState() { SetState(IBV_QPS_ERR); }

// InfiniBand Architecture Specification 1.3, 10.3.1: an error at the send queue
// of RC is one of the connection.
void QueuePair::EnterSendErrorState() {
  SetState(type() == IBV_QPT_RC ? IBV_QPS_ERR : IBV_QPS_SQE);
}

void QueuePair::TryFlushReceives() {
  // The housekeeper may be copying out of a slot: into memory that is the
  // program's again when it has the flushed receive.
  const std::unique_lock slots(slots_mutex_, std::try_to_lock);
  if (!slots.owns_lock() || receives_.flushed() || !receives_.TryFlush()) {
    return;
  }
  if (receives_.waiting() > 0) {
    receive_queue_cq().ReceivesReady(index_, /*solicited=*/true);
  }
  if (receives_.source() != nullptr) {
    context_->async_events().RaiseForQueuePair(verbs(),
                                               IBV_EVENT_QP_LAST_WQE_REACHED);
  }
}

void QueuePair::Fail(int event) {
  std::lock_guard lock(mutex_);
  FailLocked(event);
}

void QueuePair::FailLocked(int event) {
  const ibv_qp_state now = current_state();
  if (now == IBV_QPS_RESET || now == IBV_QPS_ERR) {
    return;
  }
  EnterErrorState();
  if (event >= 0) {
    context_->async_events().RaiseForQueuePair(
        verbs(), static_cast<ibv_event_type>(event));
  }
  ProgressLocked(Trigger::kCall);
}

void QueuePair::HandleFault() {
  if (shared_.fault.load(std::memory_order_acquire) == 0) {
    return;
  }
  // Again, under the mutex: a reset may have ended what it was about.
  std::lock_guard lock(mutex_);
  const std::uint32_t fault = shared_.fault.load(std::memory_order_acquire);
  if (fault != 0) {
    const bool has_event = fault == IBV_EVENT_QP_ACCESS_ERR + 1 ||
                           fault == IBV_EVENT_QP_REQ_ERR + 1;
    FailLocked(has_event ? static_cast<int>(fault) - 1 : -1);
  }
}

void QueuePair::OnPeerDeath() {
  std::lock_guard lock(mutex_);
  if (current_state() == IBV_QPS_RESET) {
    return;  // the completion queue may be gone
  }
  receive_queue_cq().RepairEvents();
  if (receives_.waiting() > 0) {
    receive_queue_cq().WakeForCertain(index_);
  }
}

// --- Datagrams ---------------------------------------------------------------

void QueuePair::ReceiveDatagram(const DatagramHeader& header,
                                std::span<const std::byte> payload) {
  std::lock_guard lock(mutex_);
  const ibv_qp_state now = current_state();
  if (type() != IBV_QPT_UD || header.qkey != attr_.qkey ||
      (now != IBV_QPS_RTR && now != IBV_QPS_RTS && now != IBV_QPS_SQD &&
       now != IBV_QPS_SQE)) {
    return;
  }
  bool few_left = false;
  if (qp_base.srq != nullptr &&
      !TakeSharedReceive(context_->owned(), context_->shared(), index_,
                         &few_left)) {
    return;
  }
  if (few_left) {
    context_->shared().attention = 1;
    context_->WakeHousekeeper();
  }
  const bool ethernet = context_->options().link_layer == LinkLayer::kEthernet;
  auto grh =
      MakeGrh(header, static_cast<std::uint32_t>(payload.size()), ethernet);
  const iovec parts[] = {
      {grh.data(), grh.size()},
      {const_cast<std::byte*>(payload.data()), payload.size()}};
  DatagramHeader completed = header;
  if (ethernet) {
    // How RoCE adapters (mlx5) tell an IPv4 header from an IPv6 one, and what
    // UCX goes by: bit 3 for UDP, then 1 for IPv6 or 2 for IPv4.
    completed.service_level = IsIpv4(header.destination) ? 0xa : 0x9;
  }
  if (receives_.Fill(context_->regions(), pd_id_, parts, completed)) {
    receive_queue_cq().ReceivesReady(
        index_, (header.flags & DatagramHeader::kSolicited) != 0);
  }
}

// --- Slots -------------------------------------------------------------------

bool QueuePair::ServeSlots() {
  std::uint32_t access;
  {
    std::lock_guard lock(mutex_);
    access = attr_.qp_access_flags;
  }
  std::lock_guard lock(slots_mutex_);
  bool served = false;
  std::uint32_t done = owned_.slots_done.load(std::memory_order_relaxed);
  // What is filled meanwhile comes with another call for attention.
  for (std::uint32_t i = 0; i < kSlots; ++i) {
    const std::uint32_t filled =
        shared_.slots_filled.load(std::memory_order_acquire);
    const ibv_qp_state now = current_state();
    const bool receives = now == IBV_QPS_RTR || now == IBV_QPS_RTS ||
                          now == IBV_QPS_SQD || now == IBV_QPS_SQE;
    if (filled == done || filled - done > kSlots || !receives) {
      return served;
    }
    const SlotRights rights = {
        context_->regions(), pd_id_,
        receives_.source() != nullptr ? receives_.source()->pd_id() : pd_id_,
        access};
    const SlotDescriptor slot = shared_.slots[done % kSlots];  // ours from now
    receives_.SeePosted();
    const SlotOutcome outcome =
        ServeSlot(context_->shared(), slot,
                  context_->shared().slots[index_][done % kSlots], rights);
    if (outcome == SlotOutcome::kBusy) {
      return served;
    }
    owned_.slot_refused[done % kSlots] =
        outcome == SlotOutcome::kRefused ? 1 : 0;
    owned_.slots_done.store(++done, std::memory_order_release);
    served = true;
  }
  return served;
}

void QueuePair::OnAttached(const std::shared_ptr<PeerLink>& link,
                           const LinkMessage& message) {
  std::lock_guard lock(mutex_);
  requester_.OnAttached(link, message);
}

void QueuePair::WaitForLocalUse() {
  { std::lock_guard lock(mutex_); }
  { std::lock_guard lock(slots_mutex_); }
}

}  // namespace ringpipe::verbs::soft
