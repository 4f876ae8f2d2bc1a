// The send queue and the retries; what a request does to the peer is in
// requester_execute.cc.
#include "verbs/soft/requester.h"

#include <errno.h>
#include <string.h>

#include <algorithm>
#include <utility>

#include "verbs/soft/context.h"
#include "verbs/soft/queue_pair.h"

namespace ringpipe::verbs::soft {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

constexpr microseconds kFirstRetry{200};
constexpr microseconds kLongestRetry{10'000};
constexpr std::uint32_t kAdversaryPolls = 8;
constexpr std::uint32_t kAdversaryMicroseconds = 1000;

constexpr std::uint32_t kKnownFlags =
    IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;

// InfiniBand Architecture Specification 1.3, table 45, in units of 10 us.
constexpr std::uint32_t kRnrTimer10us[32] = {
    65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
    48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
    2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

ibv_wc_opcode CompletionOpcode(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM
             ? IBV_WC_SEND
             : IBV_WC_RDMA_WRITE;
}

}  // namespace

Requester::Requester(Context* context, QueuePair* qp, const ibv_qp_cap& limits,
                     bool signal_all, std::uint64_t adversary_seed)
    : context_(context),
      qp_(qp),
      depth_(limits.max_send_wr),
      max_sge_(limits.max_send_sge),
      max_inline_(limits.max_inline_data),
      signal_all_(signal_all),
      random_(adversary_seed, qp->index()),
      requests_(std::make_unique<Request[]>(depth_)),
      inline_data_(std::make_unique<std::byte[]>(
          static_cast<std::size_t>(depth_) * max_inline_)) {}

void Requester::Connect(std::uint32_t dest_qpn) {
  dest_qpn_ = dest_qpn;
  next_attach_ = {};
  EnsureAttached();  // early, so that the first request finds it done
}

void Requester::Reset() {
  posted_ = executed_ = 0;
  retired_ = 0;
  dest_qpn_ = 0;
  peer_ = nullptr;
  segment_.reset();
  link_.reset();
  slot_bytes_sent_ = 0;
  ClearWait();
}

void Requester::SetRetries(int timeout, int retry_count, int rnr_retry) {
  transport_timeout_ =
      timeout == 0
          ? nanoseconds(0)
          : nanoseconds((std::int64_t{4096} << timeout) * (retry_count + 1));
  rnr_retry_ = rnr_retry;
}

// --- Posting -----------------------------------------------------------------

int Requester::Check(const ibv_send_wr& request,
                     std::uint32_t* inline_bytes) const {
  const bool known = request.opcode == IBV_WR_SEND ||
                     request.opcode == IBV_WR_SEND_WITH_IMM ||
                     request.opcode == IBV_WR_RDMA_WRITE ||
                     request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  if (!known || (request.send_flags & ~kKnownFlags) != 0 ||
      request.num_sge < 0 ||
      static_cast<std::uint32_t>(request.num_sge) > max_sge_) {
    return EINVAL;
  }
  if (posted_ - retired_.load(std::memory_order_acquire) >= depth_) {
    return ENOMEM;
  }
  *inline_bytes = 0;
  if ((request.send_flags & IBV_SEND_INLINE) != 0) {
    for (int i = 0; i < request.num_sge; ++i) {
      if (request.sg_list[i].length > max_inline_ - *inline_bytes) {
        return ENOMEM;
      }
      *inline_bytes += request.sg_list[i].length;
    }
  }
  return 0;
}

void Requester::Store(const ibv_send_wr& request, std::uint32_t inline_bytes) {
  const std::uint32_t slot = posted_ % depth_;
  Request& stored = requests_[slot];
  stored.wr_id = request.wr_id;
  stored.remote_address = request.wr.rdma.remote_addr;
  stored.rkey = request.wr.rdma.rkey;
  stored.opcode = request.opcode;
  stored.flags = request.send_flags;
  stored.immediate = request.imm_data;
  stored.sge_count = request.num_sge;
  stored.inline_bytes = inline_bytes;
  std::copy_n(request.sg_list, request.num_sge, stored.sges);
  if ((request.send_flags & IBV_SEND_INLINE) != 0) {
    std::byte* target =
        inline_data_.get() + static_cast<std::size_t>(slot) * max_inline_;
    for (int i = 0; i < request.num_sge; ++i) {
      const ibv_sge& sge = request.sg_list[i];
      memcpy(target, reinterpret_cast<const void*>(sge.addr), sge.length);
      target += sge.length;
    }
  }
  if (random_.enabled()) {
    stored.polls_to_wait = random_.Below(kAdversaryPolls) + 1;
    stored.due =
        Clock::now() + microseconds(random_.Below(kAdversaryMicroseconds) + 1);
  }
  ++posted_;
}

int Requester::Post(ibv_send_wr* requests, ibv_send_wr** bad) {
  for (; requests != nullptr; requests = requests->next) {
    std::uint32_t inline_bytes;
    if (const int error = Check(*requests, &inline_bytes); error != 0) {
      *bad = requests;
      return error;
    }
    Store(*requests, inline_bytes);
  }
  return 0;
}

// --- Progress ----------------------------------------------------------------

bool Requester::MustWait(Request& request, Trigger trigger,
                         Clock::time_point* until) {
  if (!random_.enabled() || request.polls_to_wait == 0) {
    return false;
  }
  if (trigger == Trigger::kPoll) {
    --request.polls_to_wait;
  } else if (trigger == Trigger::kTimer && Clock::now() >= request.due) {
    request.polls_to_wait = 0;
  }
  *until = request.due;
  return request.polls_to_wait > 0;
}

Clock::time_point Requester::Progress(Trigger trigger) {
  while (executed_ != posted_) {
    Request& request = requests_[executed_ % depth_];
    if (qp_->current_state() == IBV_QPS_ERR) {
      Complete(request, IBV_WC_WR_FLUSH_ERR);
      continue;
    }
    if (qp_->current_state() != IBV_QPS_RTS) {
      break;  // SQD
    }
    Clock::time_point again;
    if (MustWait(request, trigger, &again)) {
      return again;
    }
    ibv_wc_status status = IBV_WC_SUCCESS;
    const Step step = Execute(request, &status);
    if (step == Step::kDone) {
      ClearWait();
      Complete(request, IBV_WC_SUCCESS);
    } else if (step == Step::kFailed ||
               RetriesExhausted(step, Clock::now(), &status, &again)) {
      // First the state, so that who sees the completion sees ERR.
      qp_->EnterErrorState();
      Complete(request, status);
    } else {
      return again;
    }
  }
  return Clock::time_point::max();
}

void Requester::Complete(const Request& request, ibv_wc_status status) {
  ++executed_;
  if (status == IBV_WC_SUCCESS && !signal_all_ &&
      (request.flags & IBV_SEND_SIGNALED) == 0) {
    return;
  }
  ibv_wc completion = {};
  completion.wr_id = request.wr_id;
  completion.status = status;
  completion.opcode = CompletionOpcode(request.opcode);
  completion.qp_num = qp_->qp_num;
  static_cast<CompletionQueue*>(qp_->send_cq)
      ->PushSend(qp_, executed_, completion);
}

// --- Retries -----------------------------------------------------------------

void Requester::ClearWait() {
  wait_ = Wait::kNone;
  rnr_tries_ = 0;
}

bool Requester::RetriesExhausted(Step step, Clock::time_point now,
                                 ibv_wc_status* status,
                                 Clock::time_point* again) {
  switch (step) {
    case Step::kNotReady:
      *status = IBV_WC_RETRY_EXC_ERR;
      return TransportExhausted(now, again);
    case Step::kNoReceive:
      *status = IBV_WC_RNR_RETRY_EXC_ERR;
      return ReceiverExhausted(now, again);
    default:
      // In flight: the peer's process will wake us, or its death.
      wait_ = Wait::kNone;
      *again = now + kLongestRetry;
      return false;
  }
}

bool Requester::TransportExhausted(Clock::time_point now,
                                   Clock::time_point* again) {
  if (wait_ != Wait::kTransport) {
    wait_ = Wait::kTransport;
    wait_since_ = now;
    wait_interval_ = kFirstRetry;
  }
  *again = now + wait_interval_;
  wait_interval_ = std::min<Clock::duration>(wait_interval_ * 2, kLongestRetry);
  if (transport_timeout_ == Clock::duration::zero()) {
    return false;
  }
  const Clock::time_point expiry = wait_since_ + transport_timeout_;
  *again = std::min(*again, expiry);
  return now >= expiry;
}

bool Requester::ReceiverExhausted(Clock::time_point now,
                                  Clock::time_point* again) {
  const std::uint32_t code =
      peer_->min_rnr_timer.load(std::memory_order_relaxed) % 32;
  const microseconds timer(kRnrTimer10us[code] * 10);
  const bool first = wait_ != Wait::kReceive;
  if (first) {
    wait_ = Wait::kReceive;
    rnr_tries_ = 0;
  } else if (now < rnr_expiry_) {
    *again = rnr_expiry_;  // tried before its time, which is free
    return false;
  } else {
    ++rnr_tries_;
  }
  rnr_expiry_ = now + timer;
  *again = rnr_expiry_;
  return rnr_retry_ != 7 && rnr_tries_ >= rnr_retry_;
}

// --- The peer ----------------------------------------------------------------

bool Requester::EnsureAttached() {
  if (link_ != nullptr && link_->dead()) {
    peer_ = nullptr;
    link_.reset();
  }
  if (needs_attach_) {
    peer_ = nullptr;
    needs_attach_ = false;
  }
  if (peer_ != nullptr) {
    return true;
  }
  const Clock::time_point now = Clock::now();
  if (now < next_attach_) {
    return false;
  }
  next_attach_ = now + kLongestRetry;
  if (link_ == nullptr) {
    link_ = context_->LinkTo(BlockOf(dest_qpn_));
  }
  if (link_ != nullptr) {
    link_->RequestAttach(qp_->qp_num, dest_qpn_);
  }
  return false;
}

void Requester::OnAttached(const std::shared_ptr<PeerLink>& link,
                           const LinkMessage& message) {
  if (link != link_ || message.responder_qpn != dest_qpn_) {
    return;  // an answer to a question of the past
  }
  if (message.kind != LinkMessage::kAttached) {
    peer_ = nullptr;
    return;
  }
  const std::uint32_t index = IndexOf(dest_qpn_);
  segment_ = link->segment();
  peer_ = &segment_->layout().queue_pairs[index];
  incarnation_ = message.incarnation;
  channel_fd_ = link->ChannelFd(message.channel);
  slot_bytes_sent_ = 0;
}

}  // namespace ringpipe::verbs::soft
