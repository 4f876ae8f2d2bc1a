#include "verbs/soft/context.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <random>
#include <utility>

#include "verbs/soft/atomic_operation.h"
#include "verbs/soft/keep_or_lose.h"
#include "verbs/soft/link_message.h"
#include "verbs/soft/verbs_functions.h"

namespace ringpipe::verbs::soft {
namespace {

constexpr int kBindTries = 200;
constexpr int kBacklog = 1024;
// How long to wait for a peer that is inside a queue pair: much longer than any
// copy, so that one that is stopped or hangs does not hold anybody up for ever.
constexpr std::chrono::milliseconds kPeerLeaves{1000};
constexpr int kYieldsBeforeSleep = 1000;

int PollCq(ibv_cq* cq, int count, ibv_wc* completions) {
  return CompletionQueue::From(cq).Poll(count, completions);
}

int ReqNotifyCq(ibv_cq* cq, int solicited_only) {
  return CompletionQueue::From(cq).RequestNotification(solicited_only != 0);
}

int PostSend(ibv_qp* qp, ibv_send_wr* requests, ibv_send_wr** bad) {
  return QueuePair::From(qp).PostSend(requests, bad);
}

int PostRecv(ibv_qp* qp, ibv_recv_wr* requests, ibv_recv_wr** bad) {
  return QueuePair::From(qp).PostReceive(requests, bad);
}

int PostSrqRecv(ibv_srq* srq, ibv_recv_wr* requests, ibv_recv_wr** bad) {
  return SharedReceiveQueue::From(srq).Post(requests, bad);
}

int GetSrqNum(ibv_srq* srq, std::uint32_t* number) {
  *number = SharedReceiveQueue::From(srq).index();
  return 0;
}

template <typename T>
T* FailWith(int error) {
  errno = error;
  return nullptr;
}

}  // namespace

// --- Opening and closing -----------------------------------------------------

Context::Context(ibv_device* device, const Options& options,
                 const Logger& logger)
    : verbs_context{},
      options_(options),
      port_(options.link_layer, options.interfaces),
      network_(this, options, &port_, logger),
      housekeeper_(this) {
  sz = sizeof(verbs_context);
  context.device = device;
  context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  context.num_comp_vectors = 1;
  context.cmd_fd = -1;
  context.ops.poll_cq = PollCq;
  context.ops.req_notify_cq = ReqNotifyCq;
  context.ops.post_send = PostSend;
  context.ops.post_recv = PostRecv;
  create_cq_ex = CreateCqEx;
  create_qp_ex = CreateQpEx;
  query_device_ex = QueryDeviceEx;
  query_port = QueryPortWhole;
  context.ops.post_srq_recv = PostSrqRecv;
  get_srq_num = GetSrqNum;
}

std::unique_ptr<Context> Context::Open(ibv_device* device,
                                       const Options& options,
                                       const Logger& logger) {
  std::unique_ptr<Context> context(new Context(device, options, logger));
  if (const Status started = context->Start(); !started.ok()) {
    const int error = errno != 0 ? errno : ENOMEM;
    if (started.code() == StatusCode::kPermissionDenied) {
      // Who opens a device gets an errno only.
      logger.Error("soft0: " + started.ToString());
    }
    errno = error;
    return nullptr;
  }
  return context;
}

Status Context::Start() {
  RINGPIPE_ASSIGN_OR_RETURN(segment_, Segment::Create());
  regions_ = std::make_unique<RegionTable>(segment_);
  if (!async_events_.Open()) {
    return ErrnoStatus(StatusCode::kResourceExhausted,
                       "cannot open soft0 (eventfd)", errno);
  }
  FileDescriptor listener;
  if (!Bind(&listener)) {
    return ErrnoStatus(StatusCode::kResourceExhausted,
                       "cannot open soft0 (socket, bind, listen)", errno);
  }
  context.async_fd = async_events_.fd();
  return housekeeper_.Start(std::move(listener));
}

// To bind is to allocate the block: the kernel lets only one have a name.
bool Context::Bind(FileDescriptor* listener) {
  *listener = FileDescriptor(
      socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  std::random_device random;
  // 0 is left out: queue pairs 0 and 1 are special.
  const auto most = std::min<std::uint32_t>(
      (1u << kBlockBits) - 1, options_.last_port - options_.first_port);
  std::uniform_int_distribution<std::uint32_t> blocks(1, most);
  for (int i = 0; i < kBindTries && *listener; ++i) {
    block_ = blocks(random);
    sockaddr_un address;
    const socklen_t length = ContextAddress(options_, block_, &address);
    if (network_.Listen(block_) &&
        bind(listener->get(), reinterpret_cast<sockaddr*>(&address), length) ==
            0) {
      return listen(listener->get(), kBacklog) == 0;
    }
    if (errno != EADDRINUSE) {
      break;
    }
  }
  return false;
}

Context::~Context() {
  housekeeper_.Stop();
  // Also what the user forgot; nobody else looks any more.
  for (std::shared_ptr<QueuePair>& qp : qps_) {
    if (qp != nullptr) {
      qp->Shut();
    }
  }
  network_.Stop();
  std::fill(qps_.begin(), qps_.end(), nullptr);
  for (std::unique_ptr<CompletionQueue>& cq : cqs_) {
    cq.reset();
  }
}

void Context::DrainDatagrams() {
  datagrams_.Drain();
  std::lock_guard lock(objects_mutex_);
  const auto wants_more = [](const std::unique_ptr<CompletionQueue>& cq) {
    return cq != nullptr && cq->waits_for_datagrams();
  };
  if (std::any_of(cqs_.begin(), cqs_.end(), wants_more)) {
    datagrams_.Arm();
  }
}

void Context::RefreshPort() {
  for (const ibv_event_type event : port_.Refresh()) {
    async_events_.RaiseForPort(event);
  }
}

// --- Protection domains and memory -------------------------------------------

ibv_pd* Context::AllocPd() {
  auto pd = std::make_unique<ProtectionDomain>();
  pd->context = &context;
  std::lock_guard lock(objects_mutex_);
  pd->id = pd->handle = ++last_pd_;
  ibv_pd* const handle = pd.get();
  pds_[handle] = std::move(pd);
  return handle;
}

int Context::DeallocPd(ibv_pd* pd) {
  std::lock_guard lock(objects_mutex_);
  if (static_cast<ProtectionDomain*>(pd)->users > 0) {
    return EBUSY;
  }
  pds_.erase(pd);
  return 0;
}

ibv_mr* Context::RegMr(ibv_pd* pd, void* address, std::size_t length,
                       std::uint64_t iova, int access) {
  auto* domain = static_cast<ProtectionDomain*>(pd);
  auto mr = std::make_unique<ibv_mr>();
  ibv_mr* const handle = mr.get();
  *handle = {};
  handle->context = &context;
  handle->pd = pd;
  handle->addr = address;
  handle->length = length;
  {  // what can throw comes before what would have to be undone
    std::lock_guard lock(objects_mutex_);
    mrs_.emplace(handle, std::move(mr));
    ++domain->users;
  }
  const std::uint32_t key = regions_->Register(
      domain->id, address, length, iova, static_cast<std::uint32_t>(access));
  if (key == 0) {
    const int error = errno;
    std::lock_guard lock(objects_mutex_);
    mrs_.erase(handle);
    --domain->users;
    errno = error;
    return nullptr;
  }
  handle->handle = handle->lkey = handle->rkey = key;
  return handle;
}

int Context::DeregMr(ibv_mr* mr) {
  regions_->Revoke(mr->lkey);
  if (!WaitForUsers()) {
    regions_->Restore(mr->lkey);
    return EBUSY;
  }
  regions_->Release(mr->lkey);
  std::lock_guard lock(objects_mutex_);
  --static_cast<ProtectionDomain*>(mr->pd)->users;
  mrs_.erase(mr);
  return 0;
}

bool Context::WaitForUsers() {
  std::uint32_t used;
  {
    std::lock_guard lock(objects_mutex_);
    used = qps_used_;
  }
  for (std::uint32_t i = 0; i < used; ++i) {
    if (const std::shared_ptr<QueuePair> qp = FindQueuePair(i)) {
      qp->WaitForLocalUse();
    }
  }
  // By index, which covers queue pairs that were destroyed under a peer. One
  // wait for all: who is still where he was at its end has had all of it.
  std::array<std::uint32_t, kMaxQueuePairs> seen;
  for (std::uint32_t i = 0; i < used; ++i) {
    seen[i] = shared().queue_pairs[i].busy.load(std::memory_order_seq_cst);
  }
  const Deadline deadline = Deadline::After(kPeerLeaves);
  bool alone = true;
  for (std::uint32_t i = 0; i < used; ++i) {
    alone &= WaitToLeave(i, seen[i], deadline);
  }
  return alone;
}

bool Context::WaitForPeer(std::uint32_t index) {
  return WaitToLeave(
      index, shared().queue_pairs[index].busy.load(std::memory_order_seq_cst),
      Deadline::After(kPeerLeaves));
}

bool Context::WaitToLeave(std::uint32_t index, std::uint32_t seen,
                          Deadline deadline) {
  if ((seen & 1) == 0) {
    return true;
  }
  if (inside_[index] == seen) {
    return false;
  }
  const std::atomic<std::uint32_t>& busy = shared().queue_pairs[index].busy;
  for (int i = 0; busy.load(std::memory_order_acquire) == seen; ++i) {
    if (i < kYieldsBeforeSleep) {
      sched_yield();
    } else if (deadline.expired()) {
      inside_[index] = seen;
      return false;
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  return true;
}

// --- Completion channels and queues ------------------------------------------

ibv_comp_channel* Context::CreateCompChannel() {
  std::lock_guard lock(objects_mutex_);
  std::unique_ptr<CompletionChannel> channel =
      CompletionChannel::Create(this, last_channel_ + 1);
  if (channel == nullptr) {
    return nullptr;
  }
  ++last_channel_;
  ibv_comp_channel* const handle = channel.get();
  channels_[handle] = std::move(channel);
  return handle;
}

int Context::DestroyCompChannel(ibv_comp_channel* channel) {
  if (static_cast<CompletionChannel*>(channel)->in_use()) {
    return EBUSY;
  }
  std::lock_guard lock(objects_mutex_);
  channels_.erase(channel);
  return 0;
}

ibv_cq* Context::CreateCq(int entries, void* cq_context,
                          ibv_comp_channel* channel, int vector) {
  if (entries < 1 || entries > kMaxCqe || vector != 0) {
    return FailWith<ibv_cq>(EINVAL);
  }
  std::lock_guard lock(objects_mutex_);
  const auto free = std::find(cqs_.begin(), cqs_.end(), nullptr);
  if (free == cqs_.end()) {
    return FailWith<ibv_cq>(ENOMEM);
  }
  *free = std::make_unique<CompletionQueue>(
      this, static_cast<std::uint32_t>(free - cqs_.begin()), entries,
      cq_context, static_cast<CompletionChannel*>(channel),
      options_.adversary_seed);
  return (*free)->verbs();
}

int Context::DestroyCq(ibv_cq* cq) {
  CompletionQueue* queue = &CompletionQueue::From(cq);
  if (queue->in_use()) {
    return EBUSY;
  }
  queue->WaitForAcknowledgements();
  std::unique_ptr<CompletionQueue> last;
  {
    std::lock_guard lock(objects_mutex_);
    last = std::move(cqs_[queue->index()]);
  }
  async_events_.Forget(queue->verbs());
  return 0;
}

// --- Shared receive queues ---------------------------------------------------

ibv_srq* Context::CreateSrq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  const ibv_srq_attr& wanted = attr->attr;
  if (wanted.max_wr < 1 || wanted.max_wr > kMaxQueueDepth ||
      wanted.max_sge > kMaxSge) {
    return FailWith<ibv_srq>(EINVAL);
  }
  std::lock_guard lock(objects_mutex_);
  const auto free = std::find(srqs_.begin(), srqs_.end(), nullptr);
  if (free == srqs_.end()) {
    return FailWith<ibv_srq>(ENOMEM);
  }
  auto* domain = static_cast<ProtectionDomain*>(pd);
  *free = std::make_shared<SharedReceiveQueue>(
      this, static_cast<std::uint32_t>(free - srqs_.begin()), domain, *attr);
  ++domain->users;
  return (*free)->verbs();
}

int Context::ModifySrq(ibv_srq* srq, const ibv_srq_attr& attr, int mask) {
  const int error = SharedReceiveQueue::From(srq).Modify(attr, mask);
  if (error == 0) {
    // There may be fewer than the limit already.
    shared().attention.store(1);
    WakeHousekeeper();
  }
  return error;
}

int Context::QuerySrq(ibv_srq* srq, ibv_srq_attr* attr) {
  SharedReceiveQueue::From(srq).Query(attr);
  return 0;
}

int Context::DestroySrq(ibv_srq* srq) {
  SharedReceiveQueue* const queue = &SharedReceiveQueue::From(srq);
  std::shared_ptr<SharedReceiveQueue> last;
  {
    std::lock_guard lock(objects_mutex_);
    for (const std::shared_ptr<QueuePair>& qp : qps_) {
      if (qp != nullptr && qp->receives().source() == queue) {
        return EBUSY;
      }
    }
    last = std::move(srqs_[queue->index()]);
    --static_cast<ProtectionDomain*>(queue->pd)->users;
  }
  async_events_.Forget(srq);
  return 0;
}

void Context::ReportSharedReceiveLimits() {
  std::lock_guard lock(objects_mutex_);  // so that none is destroyed meanwhile
  for (const std::shared_ptr<SharedReceiveQueue>& srq : srqs_) {
    if (srq != nullptr && srq->TakeLimitEvent()) {
      async_events_.RaiseForSharedReceiveQueue(srq->verbs(),
                                               IBV_EVENT_SRQ_LIMIT_REACHED);
    }
  }
}

// --- Queue pairs -------------------------------------------------------------

bool Context::IsValid(const ibv_qp_init_attr& attr) const {
  const ibv_qp_cap& cap = attr.cap;
  return attr.send_cq != nullptr && attr.recv_cq != nullptr &&
         cap.max_send_wr <= kMaxQueueDepth &&
         cap.max_recv_wr <= kMaxQueueDepth && cap.max_send_sge <= kMaxSge &&
         cap.max_recv_sge <= kMaxSge && cap.max_inline_data <= kMaxInline;
}

std::uint32_t Context::TakeQueuePairIndex() {
  if (qps_used_ < kMaxQueuePairs) {
    return qps_used_++;
  }
  if (qps_unused_.empty()) {
    return kMaxQueuePairs;
  }
  const std::uint32_t index = qps_unused_.front();
  qps_unused_.pop_front();
  return index;
}

ibv_qp* Context::CreateQp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  if ((attr->qp_type != IBV_QPT_RC && attr->qp_type != IBV_QPT_UC &&
       attr->qp_type != IBV_QPT_UD) ||
      (attr->srq != nullptr && attr->qp_type == IBV_QPT_UC)) {
    return FailWith<ibv_qp>(EOPNOTSUPP);
  }
  if (attr->qp_type == IBV_QPT_UD) {
    if (!datagrams_.Open() || !housekeeper_.WatchDatagrams()) {
      return nullptr;
    }
  }
  if (!IsValid(*attr)) {
    return FailWith<ibv_qp>(EINVAL);
  }
  std::lock_guard lock(objects_mutex_);
  const std::uint32_t index = TakeQueuePairIndex();
  if (index == kMaxQueuePairs) {
    return FailWith<ibv_qp>(ENOMEM);
  }
  auto* domain = static_cast<ProtectionDomain*>(pd);
  qps_[index] = std::make_shared<QueuePair>(this, index, domain, *attr,
                                            options_.adversary_seed);
  ++domain->users;
  return qps_[index]->verbs();
}

int Context::DestroyQp(ibv_qp* handle) {
  QueuePair* qp = &QueuePair::From(handle);
  const std::uint32_t index = qp->index();
  std::shared_ptr<QueuePair> last;
  {
    std::lock_guard lock(objects_mutex_);
    last = std::move(qps_[index]);
    qps_[index] = nullptr;
  }
  const bool alone = qp->Shut();
  qp->send_queue_cq().Detach(qp);
  qp->receive_queue_cq().Detach(qp);
  if (alone && qp->receives().source() != nullptr) {
    qp->receives().Reset();  // gives back what it had claimed
  }
  async_events_.Forget(qp->verbs());
  std::lock_guard lock(objects_mutex_);
  --static_cast<ProtectionDomain*>(qp->qp_base.pd)->users;
  if (alone) {
    KeepOrLose(qps_unused_, index);
  }  // else the number is lost: a stopped peer may still write to its block
  return 0;
}

ibv_ah* Context::CreateAh(ibv_pd* pd, const ibv_ah_attr& attr) {
  const std::optional<ibv_gid> destination = port_.Destination(attr);
  if (!destination) {
    return FailWith<ibv_ah>(EINVAL);
  }
  auto ah = std::make_unique<AddressHandle>();
  ah->context = &context;
  ah->pd = pd;
  ah->attr = attr;
  ah->destination = *destination;
  ibv_ah* const handle = ah.get();
  std::lock_guard lock(objects_mutex_);
  ahs_[handle] = std::move(ah);
  ++static_cast<ProtectionDomain*>(pd)->users;
  return handle;
}

int Context::DestroyAh(ibv_ah* ah) {
  std::lock_guard lock(objects_mutex_);
  --static_cast<ProtectionDomain*>(ah->pd)->users;
  ahs_.erase(ah);
  return 0;
}

std::shared_ptr<QueuePair> Context::FindQueuePair(std::uint32_t index) {
  std::lock_guard lock(objects_mutex_);
  return index < kMaxQueuePairs ? qps_[index] : nullptr;
}

std::vector<std::shared_ptr<QueuePair>> Context::QueuePairs() {
  std::lock_guard lock(objects_mutex_);
  std::vector<std::shared_ptr<QueuePair>> all;
  for (std::uint32_t i = 0; i < qps_used_; ++i) {
    if (qps_[i] != nullptr) {
      all.push_back(qps_[i]);
    }
  }
  return all;
}

Context::ChannelOf Context::ReceiveChannel(QueuePair& qp) {
  std::lock_guard lock(objects_mutex_);
  // A queue that is in the middle of its destruction has lost its receivers.
  if (qps_[qp.index()].get() != &qp ||
      qp.receive_queue_cq().channel == nullptr) {
    return {};
  }
  const auto* channel =
      static_cast<const CompletionChannel*>(qp.receive_queue_cq().channel);
  // A copy: the channel itself may go as soon as the mutex is free.
  return {channel->id(),
          FileDescriptor(fcntl(channel->fd, F_DUPFD_CLOEXEC, 0))};
}

// --- Peers -------------------------------------------------------------------

std::shared_ptr<PeerLink> Context::LinkTo(std::uint32_t block) {
  std::lock_guard lock(links_mutex_);
  std::weak_ptr<PeerLink>& known = links_[block];
  std::shared_ptr<PeerLink> link = known.lock();
  if (link == nullptr || link->dead()) {
    link = PeerLink::Connect(options_, block);
    known = link;
    // A link that nobody listens to would never be attached.
    if (link == nullptr || !housekeeper_.Watch(link->socket())) {
      links_.erase(block);
      return nullptr;
    }
  }
  return link;
}

std::shared_ptr<PeerLink> Context::FindLink(int socket) {
  std::lock_guard lock(links_mutex_);
  for (const auto& [block, known] : links_) {
    std::shared_ptr<PeerLink> link = known.lock();
    if (link != nullptr && link->socket() == socket) {
      return link;
    }
  }
  return nullptr;
}

void Context::OnRequesterGone(std::uint32_t index,
                              std::uint32_t requester_qpn) {
  FreeAtomicLock(shared(), requester_qpn);
  // What it did without having woken us for it: slots wait for the lock, a
  // shared receive queue may have reached its limit.
  shared().attention.store(1);
  if (owned().queue_pairs[index].dest_qpn.load() != requester_qpn) {
    return;
  }
  std::atomic<std::uint32_t>& busy = shared().queue_pairs[index].busy;
  std::uint32_t seen = busy.load(std::memory_order_acquire);
  if ((seen & 1) != 0) {
    busy.compare_exchange_strong(seen, seen + 1);
  }
  if (const std::shared_ptr<QueuePair> qp = FindQueuePair(index)) {
    qp->OnPeerDeath();
  }
}

// --- Work that did not end at once -------------------------------------------

void Context::SetStalled(std::uint32_t qp_index, bool stalled) {
  const std::uint64_t bit = std::uint64_t{1} << qp_index % 64;
  if (stalled) {
    stalled_[qp_index / 64].fetch_or(bit);
    stalled_count_.fetch_add(1);
  } else {
    stalled_[qp_index / 64].fetch_and(~bit);
    stalled_count_.fetch_sub(1);
  }
}

void Context::ProgressStalled() {
  for (std::uint32_t word = 0; word < kMaxQueuePairs / 64; ++word) {
    std::uint64_t bits = stalled_[word].load(std::memory_order_relaxed);
    for (; bits != 0; bits &= bits - 1) {
      const std::uint32_t index = word * 64 + std::countr_zero(bits);
      if (const std::shared_ptr<QueuePair> qp = FindQueuePair(index)) {
        qp->ProgressByPoll();
      }
    }
  }
}

Clock::time_point Context::ProgressByTimer() {
  Clock::time_point next = Clock::time_point::max();
  for (std::uint32_t word = 0; word < kMaxQueuePairs / 64; ++word) {
    std::uint64_t bits = stalled_[word].load();
    for (; bits != 0; bits &= bits - 1) {
      const std::uint32_t index = word * 64 + std::countr_zero(bits);
      if (const std::shared_ptr<QueuePair> qp = FindQueuePair(index)) {
        next = std::min(next, qp->ProgressByTimer());
      }
    }
  }
  return next;
}

void Context::ReportOverruns() {
  std::vector<std::uint32_t> failed;
  {
    std::lock_guard lock(objects_mutex_);
    for (const std::unique_ptr<CompletionQueue>& cq : cqs_) {
      if (cq != nullptr && cq->TakeOverrun()) {
        async_events_.RaiseForCompletionQueue(cq->verbs());
        const auto attached = cq->AttachedQueuePairs();
        failed.insert(failed.end(), attached.begin(), attached.end());
      }
    }
  }
  for (const std::uint32_t index : failed) {
    if (const std::shared_ptr<QueuePair> qp = FindQueuePair(index)) {
      qp->Fail(IBV_EVENT_QP_FATAL);
    }
  }
}

}  // namespace ringpipe::verbs::soft
