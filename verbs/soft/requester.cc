#include "verbs/soft/requester.h"

#include "verbs/soft/context.h"
#include "verbs/soft/queue_pair.h"

namespace ringpipe::verbs::soft {
namespace {

constexpr std::chrono::milliseconds kAttachRetry{10};
// A transfer in flight is pushed on by the peer's process, or ended by its
// death; looking again is for a wake-up that was lost with it.
constexpr std::chrono::milliseconds kInFlightRetry{10};

}  // namespace

Requester::Requester(Context* context, QueuePair* qp, SendQueue* queue,
                     Retries* retries)
    : context_(context), qp_(qp), queue_(*queue), retries_(*retries) {}

void Requester::Connect(std::uint32_t dest_qpn) {
  dest_qpn_ = dest_qpn;
  next_attach_ = {};
  EnsureAttached();  // early, so that the first request finds it done
}

void Requester::Reset() {
  dest_qpn_ = 0;
  responder_.reset();
  link_.reset();
}

Clock::time_point Requester::Progress(Trigger trigger) {
  while (!queue_.empty()) {
    if (qp_->current_state() == IBV_QPS_ERR) {
      queue_.Complete(IBV_WC_WR_FLUSH_ERR);
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
      queue_.Complete(IBV_WC_SUCCESS);
      continue;
    }
    const Clock::time_point now = Clock::now();
    if (step == Step::kInFlight) {
      retries_.Clear();
      return now + kInFlightRetry;
    }
    const std::uint32_t timer = responder_ ? responder_->min_rnr_timer() : 0;
    if (step != Step::kFailed &&
        !retries_.Exhausted(step, timer, now, &status, &again)) {
      return again;
    }
    // First the state, so that who sees the completion sees ERR.
    qp_->EnterErrorState();
    queue_.Complete(status);
  }
  return Clock::time_point::max();
}

Step Requester::Execute(ibv_wc_status* status) {
  LocalMemory memory;
  if (!queue_.Gather(queue_.completed(), &memory)) {
    *status = IBV_WC_LOC_PROT_ERR;
    return Step::kFailed;
  }
  if (memory.bytes > kMaxMessageBytes) {
    *status = IBV_WC_LOC_LEN_ERR;
    return Step::kFailed;
  }
  if (!EnsureAttached()) {
    return Step::kNotReady;
  }
  return responder_->Execute(queue_.MakeOperation(queue_.completed(), memory),
                             status);
}

// --- The peer ----------------------------------------------------------------

bool Requester::EnsureAttached() {
  if (link_ != nullptr && link_->dead()) {
    responder_.reset();
    link_.reset();
  }
  // Where nothing was sent before a reset of the peer, the packet sequence
  // numbers still fit; else, as on hardware, they never will again.
  if (responder_ && responder_->outdated() && queue_.completed() == 0) {
    responder_.reset();
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

void Requester::OnAttached(const std::shared_ptr<PeerLink>& link,
                           const LinkMessage& message) {
  if (link != link_ || message.responder_qpn != dest_qpn_) {
    return;  // an answer to a question of the past
  }
  responder_.reset();
  if (message.kind != LinkMessage::kAttached) {
    return;
  }
  responder_.emplace(link, link->segment()->layout().regions,
                     link->ChannelFd(message.channel),
                     Responder::Identity{.qpn = dest_qpn_,
                                         .incarnation = message.incarnation,
                                         .requester_qpn = qp_->number(),
                                         .send_psn = send_psn_,
                                         .remote = false});
}

}  // namespace ringpipe::verbs::soft
