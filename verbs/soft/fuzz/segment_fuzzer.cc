#include "verbs/soft/fuzz/segment_fuzzer.h"

#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>

#include "verbs/soft/completion_queue.h"
#include "verbs/soft/context.h"
#include "verbs/soft/datagrams.h"
#include "verbs/soft/fuzz/hostile_peer.h"
#include "verbs/soft/fuzz/input_reader.h"
#include "verbs/soft/fuzz/receipts.h"
#include "verbs/soft/link_message.h"
#include "verbs/soft/queue_pair.h"
#include "verbs/soft/shared_receive_queue.h"
#include "verbs/soft/verbs_functions.h"

namespace ringpipe::verbs::soft {
namespace {

constexpr std::size_t kMemoryBytes = 64 * 1024;
constexpr std::uint32_t kDepth = 16;
constexpr std::uint32_t kSges = 3;
constexpr int kMostOps = 64;
constexpr std::uint32_t kQkey = 5;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                        IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
// Of the rings, as much as an input may store to.
constexpr std::size_t kEntries = 16;

void Require(bool condition, const char* what) {
  if (!condition) {
    fprintf(stderr, "segment_fuzzer: %s: %s\n", what, strerror(errno));
    abort();
  }
}

// A queue pair number of the peer for each of the victim's.
constexpr std::uint32_t PeerIndex(std::uint32_t i) { return i; }

// The context lives as long as the process, its queues as long as an input. Its
// housekeeper has no thread: an input says when it does its rounds.
class Victim {
 public:
  Victim();
  void Run(const std::uint8_t* data, std::size_t size);

 private:
  void Begin(std::uint8_t options);
  void End();
  void CreateQueues();
  void DestroyQueues();
  ibv_qp* CreateQueuePair(SegmentQueuePair which);
  void Connect();
  int ToState(std::uint32_t which, ibv_qp_state state);
  void Step(SegmentOp op, InputReader& input);

  void Store(InputReader& input);
  std::span<std::byte> Area(bool of_victim, SegmentArea area,
                            std::uint32_t which);
  void Complete(InputReader& input);
  void FillSlot(InputReader& input);
  void Request(InputReader& input, bool as_responder);
  void Datagram(InputReader& input);

  void PostReceive(InputReader& input);
  void PostSend(InputReader& input);
  void Poll(ibv_cq* cq, int count);
  void TakeEvents();
  void Modify(InputReader& input);
  void Query(std::uint32_t which);
  void Reregister();
  // As when the peer has died: it is in none of the queue pairs.
  void EndPeer();

  std::uint32_t Which(InputReader& input) const {
    return input.Byte() % kSegmentQueuePairs;
  }
  ibv_cq* Cq(InputReader& input) const { return cqs_[input.Byte() % 2]; }
  SharedQueuePair& Shared(std::uint32_t which) {
    return QueuePair::From(qps_[which]).shared();
  }
  ibv_sge Sge(std::uint8_t memory, std::uint32_t bytes) const;

  HostilePeer peer_;
  SoftDevice device_;
  Context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_ah* ah_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  std::unique_ptr<std::byte[]> memory_;
  std::byte* shared_memory_ = nullptr;
  std::array<ibv_mr*, 2> mrs_ = {};
  ibv_gid gid_ = {};

  std::array<ibv_cq*, 2> cqs_ = {};  // with room for all, and not
  ibv_srq* srq_ = nullptr;
  std::array<ibv_qp*, kSegmentQueuePairs> qps_ = {};
  std::shared_ptr<PeerLink> link_;
  Receipts receipts_;
  std::uint8_t options_ = 0;
  // The connections bear what only this input did to them.
  bool responder_soiled_ = false;
  bool requester_soiled_ = false;
};

Victim::Victim() : memory_(new std::byte[kMemoryBytes]()) {
  ibv_context* const verbs = OpenDevice(&device_);
  Require(verbs != nullptr, "open");
  context_ = &Context::From(verbs);
  context_->housekeeper().Stop();
  pd_ = AllocPd(verbs);
  Require(QueryGid(verbs, 1, 0, &gid_) == 0, "gid");
  ibv_ah_attr address = {};
  address.is_global = 1;
  address.port_num = 1;
  address.grh.dgid = gid_;
  ah_ = CreateAh(pd_, &address);
  channel_ = CreateCompChannel(verbs);
  shared_memory_ =
      static_cast<std::byte*>(context_->segment().Allocate(kMemoryBytes));
  mrs_ = {RegMr(pd_, memory_.get(), kMemoryBytes, kAccess),
          RegMr(pd_, shared_memory_, kMemoryBytes, kAccess)};
  Require(pd_ != nullptr && ah_ != nullptr && channel_ != nullptr &&
              shared_memory_ != nullptr && mrs_[0] != nullptr &&
              mrs_[1] != nullptr,
          "objects");
  // Nobody waits for what an input did not cause.
  fcntl(channel_->fd, F_SETFL, O_NONBLOCK);
  fcntl(verbs->async_fd, F_SETFL, O_NONBLOCK);
  peer_.SetVictim(context_->block(), context_->segment());
}

void Victim::Run(const std::uint8_t* data, std::size_t size) {
  InputReader input(data, size);
  Begin(input.Byte());
  for (int i = 0; i < kMostOps && !input.empty(); ++i) {
    constexpr auto kOps = static_cast<std::uint8_t>(SegmentOp::kOps);
    Step(static_cast<SegmentOp>(input.Byte() % kOps), input);
  }
  End();
}

// --- The beginning and the end -----------------------------------------------

void Victim::Begin(std::uint8_t options) {
  options_ = options;
  peer_.ResetSegment();
  context_->shared().attention = 0;
  context_->shared().atomic_lock = 0;
  context_->shared().atomic_lock_wanted = 0;
  CreateQueues();
  Connect();
}

ibv_qp* Victim::CreateQueuePair(SegmentQueuePair which) {
  ibv_qp_init_attr attr = {};
  const bool fits = which == kReliable || which == kShared;
  attr.send_cq = attr.recv_cq = cqs_[fits ? 0 : 1];
  attr.cap = {kDepth, kDepth, kSges, kSges, 64};
  attr.qp_type = which == kUd           ? IBV_QPT_UD
                 : which == kUnreliable ? IBV_QPT_UC
                                        : IBV_QPT_RC;
  attr.srq = which == kShared ? srq_ : nullptr;
  ibv_qp* const qp = CreateQp(pd_, &attr);
  Require(qp != nullptr, "create_qp");
  return qp;
}

void Victim::CreateQueues() {
  ibv_context* const verbs = &context_->verbs();
  cqs_ = {CreateCq(verbs, 256, nullptr, channel_, 0),
          CreateCq(verbs, 8, nullptr, channel_, 0)};
  ibv_srq_init_attr attr = {};
  attr.attr = {kDepth, kSges, 0};
  context_->owned().receive_rings[0].posted = 0;
  srq_ = CreateSrq(pd_, &attr);
  Require(cqs_[0] != nullptr && cqs_[1] != nullptr && srq_ != nullptr, "cq");
  for (const SegmentQueuePair which : {kReliable, kShared, kUnreliable, kUd}) {
    qps_[which] = CreateQueuePair(which);
  }
}

void Victim::Connect() {
  for (std::uint32_t i = 0; i < kSegmentQueuePairs; ++i) {
    peer_.AddQueuePair(PeerIndex(i), qps_[i]->qp_type, qps_[i]->qp_num,
                       i == kShared);
    for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
      Require((errno = ToState(i, state)) == 0, "connect");
    }
  }
  link_ = context_->LinkTo(peer_.block());
  if (link_ != nullptr && (options_ & kSlotsOnly) != 0) {
    link_->UseSlots();
    responder_soiled_ = true;
  }
  peer_.AnswerAll();
  context_->housekeeper().Round();
}

int Victim::ToState(std::uint32_t which, ibv_qp_state state) {
  ibv_qp_attr attr = {};
  attr.qp_state = state;
  attr.port_num = 1;
  attr.qkey = kQkey;
  attr.qp_access_flags = kAccess;
  attr.path_mtu = IBV_MTU_4096;
  attr.dest_qp_num = peer_.Qpn(PeerIndex(which));
  attr.max_dest_rd_atomic = attr.max_rd_atomic = 4;
  attr.rnr_retry = (options_ & kRetryForEver) != 0 ? 7 : 0;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = gid_;
  const bool is_ud = which == kUd;
  const bool is_rc = which == kReliable || which == kShared;
  int mask = IBV_QP_STATE;
  if (state == IBV_QPS_INIT) {
    mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT |
            (is_ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
  } else if (state == IBV_QPS_RTR && !is_ud) {
    mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
            (is_rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0);
  } else if (state == IBV_QPS_RTS) {
    mask |=
        IBV_QP_SQ_PSN | (is_rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
                               : 0);
  }
  return ModifyQp(qps_[which], &attr, mask);
}

void Victim::EndPeer() {
  for (const ibv_qp* qp : qps_) {
    context_->shared().queue_pairs[IndexOf(qp->qp_num)].busy = 0;
  }
}

void Victim::End() {
  EndPeer();
  for (std::uint32_t i = 0; i < kSegmentQueuePairs; ++i) {
    ToState(i, IBV_QPS_ERR);
  }
  context_->housekeeper().Round();
  for (ibv_cq* cq : cqs_) {
    Poll(cq, 255);
  }
  TakeEvents();
  DestroyQueues();
  if (responder_soiled_) {
    link_.reset();
    peer_.HangUpAsResponder();
  }
  if (requester_soiled_) {
    peer_.HangUpAsRequester();
  }
  if (responder_soiled_ || requester_soiled_) {
    context_->housekeeper().Round();
  }
  responder_soiled_ = requester_soiled_ = false;
  receipts_.Clear();
}

void Victim::DestroyQueues() {
  EndPeer();
  for (ibv_qp* qp : qps_) {
    Require((errno = DestroyQp(qp)) == 0, "destroy_qp");
  }
  Require((errno = DestroySrq(srq_)) == 0, "destroy_srq");
  for (ibv_cq* cq : cqs_) {
    Require((errno = DestroyCq(cq)) == 0, "destroy_cq");
  }
}

// --- The program -------------------------------------------------------------

void Victim::Step(SegmentOp op, InputReader& input) {
  switch (op) {
    case SegmentOp::kStore:
      return Store(input);
    case SegmentOp::kComplete:
      return Complete(input);
    case SegmentOp::kFillSlot:
      return FillSlot(input);
    case SegmentOp::kAnswer:
      return peer_.AnswerAll();
    case SegmentOp::kRespond:
      return Request(input, /*as_responder=*/true);
    case SegmentOp::kRequest:
      return Request(input, /*as_responder=*/false);
    case SegmentOp::kDatagram:
      return Datagram(input);
    case SegmentOp::kHangUp:
      return input.Byte() % 2 != 0 ? peer_.HangUpAsResponder()
                                   : peer_.HangUpAsRequester();
    case SegmentOp::kPostReceive:
      return PostReceive(input);
    case SegmentOp::kPostSend:
      return PostSend(input);
    case SegmentOp::kPoll: {
      ibv_cq* const cq = Cq(input);
      return Poll(cq, input.Byte() % 32);
    }
    case SegmentOp::kArm: {
      ibv_cq* const cq = Cq(input);
      ibv_req_notify_cq(cq, input.Byte() % 2);
      return;
    }
    case SegmentOp::kTakeEvents:
      return TakeEvents();
    case SegmentOp::kModify:
      return Modify(input);
    case SegmentOp::kQuery:
      return Query(Which(input));
    case SegmentOp::kHousekeep:
      context_->housekeeper().Round();
      return;
    case SegmentOp::kReregister:
      return Reregister();
    case SegmentOp::kLimit: {
      ibv_srq_attr attr = {};
      attr.srq_limit = input.Byte();
      ModifySrq(srq_, &attr, IBV_SRQ_LIMIT);
      return;
    }
    case SegmentOp::kOps:
      return;
  }
}

// --- The peer ----------------------------------------------------------------

std::span<std::byte> Victim::Area(bool of_victim, SegmentArea area,
                                  std::uint32_t which) {
  SharedLayout& shared = of_victim ? context_->shared() : peer_.shared();
  OwnedLayout& owned = peer_.owned();
  const std::uint32_t qp =
      of_victim ? IndexOf(qps_[which]->qp_num) : PeerIndex(which);
  const std::uint32_t cq =
      of_victim ? CompletionQueue::From(qps_[which]->recv_cq).index() : 0;
  const auto bytes = [](auto* first, std::size_t count) {
    return std::as_writable_bytes(std::span(first, count));
  };
  SharedReceiveRing& ring = shared.receive_rings[0];
  switch (area) {
    case SegmentArea::kHeader:
      return bytes(reinterpret_cast<std::byte*>(&shared),
                   offsetof(SharedLayout, completion_queues));
    case SegmentArea::kQueuePairFields:
      return bytes(&shared.queue_pairs[qp], 1);
    case SegmentArea::kReceiveCompletions:
      return bytes(shared.completions[qp], kEntries);
    case SegmentArea::kCompletionQueueFields:
      return bytes(&shared.completion_queues[cq], 1);
    case SegmentArea::kReceiveRing:
      return bytes(
          reinterpret_cast<std::byte*>(&ring),
          offsetof(SharedReceiveRing, words) + kEntries * sizeof ring.words[0]);
    case SegmentArea::kOwnedQueuePairFields:
      return bytes(&owned.queue_pairs[qp], 1);
    case SegmentArea::kReceives:
      return bytes(owned.receives[qp], kEntries);
    case SegmentArea::kOwnedRing:
      return bytes(reinterpret_cast<std::byte*>(&owned.receive_rings[0]),
                   offsetof(OwnedReceiveRing, receives));
    case SegmentArea::kSharedReceives:
      return bytes(owned.receive_rings[0].receives, kEntries);
    case SegmentArea::kRegions:
      return bytes(&owned.regions[1], 2);
    case SegmentArea::kAreas:
      break;
  }
  return {};
}

void Victim::Store(InputReader& input) {
  const bool of_victim = input.Byte() % 2 == 0;
  const auto area = static_cast<SegmentArea>(
      input.Byte() % static_cast<std::uint8_t>(of_victim
                                                   ? SegmentArea::kFirstOwned
                                                   : SegmentArea::kAreas));
  const std::span<std::byte> bytes = Area(of_victim, area, Which(input));
  const std::size_t offset = input.Next<std::uint16_t>() % bytes.size();
  std::byte* const at = bytes.data() + offset;
  const auto store = [&](auto value) {
    if (sizeof value <= bytes.size() - offset) {
      memcpy(at, &value, sizeof value);
    }
  };
  switch (static_cast<StoreKind>(
      input.Byte() % static_cast<std::uint8_t>(StoreKind::kKinds))) {
    case StoreKind::kByte:
      return store(input.Byte());
    case StoreKind::kWord:
      return store(input.Next<std::uint32_t>());
    case StoreKind::kDoubleWord:
      return store(input.Next<std::uint64_t>());
    case StoreKind::kAdd: {
      std::uint32_t value = 0;
      memcpy(&value, at, std::min(sizeof value, bytes.size() - offset));
      const auto change = static_cast<std::int8_t>(input.Byte());
      return store(value + static_cast<std::uint32_t>(change));
    }
    case StoreKind::kKinds:
      return;
  }
}

void Victim::Complete(InputReader& input) {
  const std::uint32_t which = Which(input);
  const std::uint32_t index = IndexOf(qps_[which]->qp_num);
  SharedQueuePair& shared = Shared(which);
  const OwnedLayout& owned = context_->owned();
  SharedLayout& layout = context_->shared();
  const std::uint32_t completed = shared.completed;
  ReceiveCompletion& entry =
      layout.completions[index][completed & owned.queue_pairs[index].ring_mask &
                                (kEntries - 1)];
  if (which == kShared) {
    bool few_left = false;
    const std::optional<std::uint32_t> claimed = ClaimReceive(
        owned.receive_rings[0], layout.receive_rings[0], index, &few_left);
    entry.shared_receive = claimed.value_or(0);
    shared.claimed = completed + 1;
  }
  entry.status = IBV_WC_SUCCESS;
  entry.opcode = IBV_WC_RECV;
  entry.byte_count = input.Next<std::uint16_t>();
  entry.flags = 0;
  shared.completed = completed + 1;
  SharedCompletionQueue& cq =
      CompletionQueue::From(qps_[which]->recv_cq).shared();
  cq.ready[index / 64].fetch_or(std::uint64_t{1} << index % 64);
  NotifyCompletion(cq, channel_->fd, /*solicited=*/false);
}

void Victim::FillSlot(InputReader& input) {
  const std::uint32_t which = Which(input);
  SharedQueuePair& shared = Shared(which);
  SlotDescriptor& slot = shared.slots[shared.slots_filled % kSlots];
  slot.kind = input.Byte();
  slot.access = input.Byte();
  slot.key = mrs_[slot.kind / 8 % 2]->rkey;
  slot.address =
      reinterpret_cast<std::uint64_t>(mrs_[slot.kind / 8 % 2]->addr) +
      input.Next<std::uint32_t>();
  slot.kind %= 8;
  slot.bytes = input.Next<std::uint32_t>();
  slot.compare_add = slot.swap = 1;
  shared.slots_filled = shared.slots_filled + 1;
  context_->shared().attention = 1;
}

// A LinkMessage for the first queue pair, over which the input's bytes go; more
// of them make it too long.
void Victim::Request(InputReader& input, bool as_responder) {
  const auto file = [&input] {
    return static_cast<HostilePeer::File>(input.Byte() % HostilePeer::kFiles);
  };
  HostilePeer::Files files = {file()};
  if (as_responder) {
    std::generate(files.begin() + 1, files.end(), file);
  }
  const std::uint32_t own = qps_[kReliable]->qp_num;
  const std::uint32_t other = peer_.Qpn(PeerIndex(kReliable));
  LinkMessage message;
  message.kind = as_responder ? LinkMessage::kAttached : LinkMessage::kAttach;
  message.requester_qpn = as_responder ? own : other;
  message.responder_qpn = as_responder ? other : own;
  message.incarnation = 1;
  message.channel = 2;
  message.segment = 1;
  constexpr std::size_t kMostLonger = 16;
  std::array<std::uint8_t, sizeof message + kMostLonger> bytes = {};
  memcpy(bytes.data(), &message, sizeof message);
  const std::uint8_t replaced = input.Byte();
  const auto over = input.Bytes(replaced % (bytes.size() - 4));
  // The magic is at their end: few inputs need to know it.
  std::copy(over.begin(), over.end(),
            bytes.begin() + sizeof message.magic - (replaced >= 128 ? 4 : 0));
  const std::size_t longer =
      over.size() > sizeof message - 4 ? over.size() - (sizeof message - 4) : 0;
  const std::span<const std::uint8_t> sent(
      bytes.data(), std::min(bytes.size(), sizeof message + longer));
  if (as_responder) {
    responder_soiled_ = true;
    peer_.SendAsResponder(sent, files);
  } else {
    requester_soiled_ = true;
    peer_.SendAsRequester(sent, files);
  }
}

void Victim::Datagram(InputReader& input) {
  DatagramHeader header;
  header.dest_qpn = qps_[kUd]->qp_num;
  header.src_qpn = peer_.Qpn(PeerIndex(kUd));
  header.qkey = kQkey;
  header.destination = header.source = gid_;
  std::array<std::uint8_t, sizeof header + kMaxDatagramBytes + 64> bytes = {};
  memcpy(bytes.data(), &header, sizeof header);
  const auto over = input.Bytes(input.Byte() % sizeof header);
  std::copy(over.begin(), over.end(), bytes.begin() + sizeof header.magic);
  const std::size_t payload = input.Next<std::uint16_t>();
  peer_.SendDatagram(
      {bytes.data(), std::min(bytes.size(), sizeof header + payload)});
}

// --- The victim --------------------------------------------------------------

ibv_sge Victim::Sge(std::uint8_t memory, std::uint32_t bytes) const {
  const ibv_mr* const mr = mrs_[memory % 2];
  return {reinterpret_cast<std::uint64_t>(mr->addr) + memory / 2 * 64, bytes,
          mr->lkey};
}

void Victim::PostReceive(InputReader& input) {
  const std::uint32_t which = Which(input);
  std::array<ibv_sge, 4> sges;  // one too many
  const std::uint8_t count = input.Byte() % (sges.size() + 1);
  const std::uint32_t bytes = input.Next<std::uint16_t>();
  for (std::uint8_t i = 0; i < count; ++i) {
    sges[i] = Sge(i, bytes);
  }
  ibv_recv_wr request = {};
  request.wr_id =
      receipts_.AddReceive(qps_[which]->qp_num, std::uint64_t{count} * bytes);
  request.sg_list = sges.data();
  request.num_sge = count;
  ibv_recv_wr* bad = nullptr;
  const int error = which == kShared
                        ? ibv_post_srq_recv(srq_, &request, &bad)
                        : ibv_post_recv(qps_[which], &request, &bad);
  if (error != 0) {
    Require(bad == &request, "no bad_wr");
    receipts_.Withdraw(request.wr_id);
  }
}

void Victim::PostSend(InputReader& input) {
  const std::uint32_t which = Which(input);
  ibv_send_wr request = {};
  request.opcode = static_cast<ibv_wr_opcode>(input.Byte() % 8);
  request.send_flags = input.Byte();
  const std::uint8_t memory = input.Byte();
  ibv_sge sge = Sge(memory, input.Next<std::uint16_t>());
  request.sg_list = &sge;
  request.num_sge = 1;
  constexpr std::uint32_t kKeys[] = {HostilePeer::kSharedKey,
                                     HostilePeer::kPrivateKey, 0x300};
  const std::uint32_t key = kKeys[input.Byte() % std::size(kKeys)];
  const std::uint64_t address =
      HostilePeer::kRegionAddress + input.Next<std::uint32_t>();
  if (which == kUd) {
    request.wr.ud = {ah_, qps_[kUd]->qp_num, kQkey};
  } else if (IsAtomic(request.opcode)) {
    request.wr.atomic = {address, 1, 2, key};
    sge.length = sizeof(std::uint64_t);
  } else {
    request.wr.rdma = {address, key};
  }
  if ((request.send_flags & IBV_SEND_INLINE) != 0) {
    sge.length %= 100;
    sge.addr = reinterpret_cast<std::uint64_t>(memory_.get());
  }
  request.wr_id = receipts_.AddSend(qps_[which]->qp_num);
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(qps_[which], &request, &bad) != 0) {
    Require(bad == &request, "no bad_wr");
    receipts_.Withdraw(request.wr_id);
  }
}

void Victim::Poll(ibv_cq* cq, int count) {
  std::array<ibv_wc, 256> completions;
  const int got = ibv_poll_cq(cq, count, completions.data());
  Require(got <= count, "more completions than asked for");
  for (int i = 0; i < got; ++i) {
    receipts_.Take(completions[i]);
  }
}

void Victim::TakeEvents() {
  // A peer may make any number of them.
  ibv_cq* cq;
  void* cq_context;
  for (int i = 0; i < 4 && GetCqEvent(channel_, &cq, &cq_context) == 0; ++i) {
    Require(cq == cqs_[0] || cq == cqs_[1], "an event of nobody");
    AckCqEvents(cq, 1);
  }
  ibv_async_event event;
  for (int i = 0; i < 16 && GetAsyncEvent(&context_->verbs(), &event) == 0;
       ++i) {
    AckAsyncEvent(&event);
  }
}

void Victim::Modify(InputReader& input) {
  const std::uint32_t which = Which(input);
  const auto state = static_cast<ibv_qp_state>(input.Byte() % 7);
  if (state == IBV_QPS_RESET) {
    EndPeer();
    // Not what the shared receive queue has: that may come again.
    if (which != kShared) {
      receipts_.Forget(qps_[which]->qp_num);
    }
  }
  ToState(which, state);
}

void Victim::Query(std::uint32_t which) {
  ibv_qp_attr attr;
  ibv_qp_init_attr init;
  Require(QueryQp(qps_[which], &attr, IBV_QP_STATE, &init) == 0, "query_qp");
}

void Victim::Reregister() {
  EndPeer();
  Require((errno = DeregMr(mrs_[0])) == 0, "dereg_mr");
  mrs_[0] = RegMr(pd_, memory_.get(), kMemoryBytes, kAccess);
  Require(mrs_[0] != nullptr, "reg_mr");
}

}  // namespace

void FuzzSegment(const std::uint8_t* data, std::size_t size) {
  // Never destroyed: what it is made of lasts as long as the process.
  static Victim* const victim = new Victim;
  victim->Run(data, size);
}

}  // namespace ringpipe::verbs::soft
