#include "verbs/soft/requester.h"

#include "verbs/soft/context.h"
#include "verbs/soft/queue_pair.h"

namespace ringpipe::verbs::soft {
namespace {

constexpr std::chrono::milliseconds kAttachRetry{10};
// A transfer in flight is pushed on by the peer's process, or ended by its
// death; looking again is for a wake-up that was lost with it.
constexpr std::chrono::milliseconds kInFlightRetry{10};
// An atomic in flight mostly waits for another, which takes microseconds.
constexpr std::chrono::microseconds kAtomicRetry{100};
constexpr std::chrono::milliseconds kDatagramPatience{20};
// How long a request of UC waits until its peer is found. A cable is always
// there; here, the first request would be lost for want of one.
constexpr std::chrono::milliseconds kAttachPatience{100};
constexpr std::chrono::microseconds kUnattachedRetry{500};
// The process is there, and has not answered yet: it has other work, or is
// stopped.
constexpr std::chrono::milliseconds kConnectPatience{1000};

}  // namespace

Requester::Requester(Context* context, QueuePair* qp, SendQueue* queue,
                     Retries* retries)
    : context_(context), qp_(qp), queue_(*queue), retries_(*retries) {}

void Requester::Connect(std::uint32_t dest_qpn) {
  dest_qpn_ = dest_qpn;
  next_attach_ = {};
  attach_patience_ = Clock::now() + kAttachPatience;
  connect_patience_ = Clock::now() + kConnectPatience;
  EnsureAttached();  // early, so that the first request finds it done
}

void Requester::SetSendPsn(std::uint32_t psn) {
  send_psn_ = psn;
  if (responder_) {
    responder_->set_send_psn(psn);
  }
}

void Requester::Reset() {
  dest_qpn_ = 0;
  responder_.reset();
  link_.reset();
}

Clock::time_point Requester::Progress(Trigger trigger) {
  while (!queue_.empty()) {
    if (qp_->current_state() == IBV_QPS_ERR ||
        qp_->current_state() == IBV_QPS_SQE) {
      Complete(IBV_WC_WR_FLUSH_ERR);
      continue;
    }
    if (qp_->current_state() != IBV_QPS_RTS) {
      break;  // SQD
    }
    Clock::time_point again;
    if (qp_->adversary().Holds(queue_.oldest(), trigger, &again)) {
      return again;
    }
    ibv_wc_status status = IBV_WC_SUCCESS;
    const Step step = Execute(&status);
    if (step == Step::kDone) {
      retries_.Clear();
      Complete(IBV_WC_SUCCESS);
      continue;
    }
    const Clock::time_point now = Clock::now();
    if (step == Step::kInFlight) {
      retries_.Clear();
      return IsAtomic(queue_.oldest().opcode) ? now + kAtomicRetry
                                              : now + kInFlightRetry;
    }
    if (step == Step::kNotReady &&
        (qp_->type() == IBV_QPT_UC || AwaitsFirstAnswer(now))) {
      return now + kUnattachedRetry;
    }
    const std::uint32_t timer = responder_ ? responder_->min_rnr_timer() : 0;
    if (step != Step::kFailed &&
        !retries_.Exhausted(step, timer, now, &status, &again)) {
      return again;
    }
    // First the state, so that who sees the completion sees the error state.
    qp_->EnterSendErrorState();
    Complete(status);
  }
  return Clock::time_point::max();
}

void Requester::Complete(ibv_wc_status status) {
  if (responder_) {
    responder_->EndOperation();
  }
  queue_.Complete(status);
}

Step Requester::Execute(ibv_wc_status* status) {
  LocalMemory memory;
  *status = queue_.CheckedGather(queue_.completed(), &memory);
  if (*status != IBV_WC_SUCCESS) {
    return Step::kFailed;
  }
  if (qp_->type() == IBV_QPT_UD) {
    return SendDatagram(memory, status);
  }
  return qp_->type() == IBV_QPT_UC ? ExecuteUnreliably(memory)
                                   : ExecuteOnPeer(memory, status);
}

// Nobody acknowledges: it is done, or lost, which is the same from here.
Step Requester::ExecuteUnreliably(const LocalMemory& memory) {
  ibv_wc_status unknown;
  const Step step = ExecuteOnPeer(memory, &unknown);
  const Clock::time_point now = Clock::now();
  const bool may_attach =
      !responder_ && (now < attach_patience_ || AwaitsFirstAnswer(now));
  return step == Step::kInFlight || (step == Step::kNotReady && may_attach)
             ? step
             : Step::kDone;
}

Step Requester::ExecuteOnPeer(const LocalMemory& memory,
                              ibv_wc_status* status) {
  if (!EnsureAttached()) {
    return Step::kNotReady;
  }
  return responder_->Execute(queue_.MakeOperation(queue_.completed(), memory),
                             status);
}

Step Requester::SendDatagram(const LocalMemory& memory, ibv_wc_status* status) {
  if (memory.bytes > kMaxDatagramBytes) {
    *status = IBV_WC_LOC_LEN_ERR;
    return Step::kFailed;
  }
  const SendRequest& request = queue_.oldest();
  const auto& ah = *static_cast<const AddressHandle*>(request.ah);
  const ibv_port_attr port = context_->port().attributes();
  DatagramHeader header;
  header.dest_qpn = request.remote_qpn;
  header.src_qpn = qp_->number();
  // The high bit says that the queue pair's own key is meant.
  header.qkey = (request.remote_qkey & 0x80000000) != 0 ? qp_->qkey()
                                                        : request.remote_qkey;
  header.immediate = request.immediate;
  header.slid = port.lid;
  header.service_level = ah.attr.sl;
  header.flags = static_cast<std::uint8_t>(
      (HasImmediate(request.opcode) ? DatagramHeader::kImmediate : 0) |
      ((request.flags & IBV_SEND_SOLICITED) != 0 ? DatagramHeader::kSolicited
                                                 : 0) |
      (ah.attr.is_global != 0 ? DatagramHeader::kGrh : 0));
  header.source = context_->port().Source(ah.attr);
  header.destination = ah.destination;
  if (context_->datagrams().Send(header, memory.span()) ==
      Datagrams::Sent::kDone) {
    full_since_ = {};
    return Step::kDone;
  }
  // The link holds the sender up for a moment, and then loses the packet.
  const Clock::time_point now = Clock::now();
  if (full_since_ == Clock::time_point{}) {
    full_since_ = now;
  }
  if (now - full_since_ > kDatagramPatience) {
    full_since_ = {};
    return Step::kDone;
  }
  return Step::kInFlight;
}

// --- The peer ----------------------------------------------------------------

bool Requester::EnsureAttached() {
  if (link_ != nullptr && link_->dead()) {
    responder_.reset();
    link_.reset();
    attach_patience_ = {};
  }
  // Where nothing was sent before a reset of the peer, the packet sequence
  // numbers still fit; else, as on hardware, they never will again.
  if (responder_ && responder_->outdated() &&
      (queue_.completed() == 0 || qp_->type() == IBV_QPT_UC)) {
    responder_.reset();
    attach_patience_ = Clock::now() + kAttachPatience;
  }
  if (responder_) {
    return true;
  }
  const Clock::time_point now = Clock::now();
  if (now < next_attach_) {
    return false;
  }
  next_attach_ = now + kAttachRetry;
  if (link_ == nullptr) {
    link_ = context_->LinkTo(BlockOf(dest_qpn_));
  }
  if (link_ != nullptr) {
    link_->RequestAttach(qp_->number(), dest_qpn_);
  }
  return false;
}

bool Requester::AwaitsFirstAnswer(Clock::time_point now) const {
  return link_ != nullptr && !responder_ && now < connect_patience_;
}

void Requester::OnAttached(const std::shared_ptr<PeerLink>& link,
                           const LinkMessage& message) {
  if (link != link_ || message.responder_qpn != dest_qpn_) {
    return;  // an answer to a question of the past
  }
  connect_patience_ = {};
  if (message.kind == LinkMessage::kAttached && responder_ &&
      responder_->incarnation() == message.incarnation) {
    return;  // asked twice: what it has in flight must not begin anew
  }
  responder_.reset();
  if (message.kind != LinkMessage::kAttached) {
    return;
  }
  responder_.emplace(link, link->segment()->owned().regions,
                     link->ChannelFd(message.channel),
                     Responder::Identity{.qpn = dest_qpn_,
                                         .incarnation = message.incarnation,
                                         .requester_qpn = qp_->number(),
                                         .send_psn = send_psn_,
                                         .type = qp_->type(),
                                         .remote = false});
}

}  // namespace ringpipe::verbs::soft
