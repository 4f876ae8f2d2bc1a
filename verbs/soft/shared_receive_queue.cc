#include "verbs/soft/shared_receive_queue.h"

#include <errno.h>

#include <algorithm>
#include <bit>

#include "verbs/soft/context.h"

namespace ringpipe::verbs::soft {
namespace {

// Each failed try is somebody else's success; more than this is a ring that is
// not sane.
constexpr int kMostTries = 1 << 16;
constexpr std::uint32_t kNoReceive = ~std::uint32_t{0};

static_assert(kMaxQueueDepth <= 1 << 16 && kMaxQueuePairs < 1 << 16,
              "a word has 16 bits for each");

std::uint64_t MakeWord(std::uint32_t number, std::uint32_t receive) {
  return std::uint64_t{number} << 32 | receive << 16;
}
std::uint32_t NumberIn(std::uint64_t word) {
  return static_cast<std::uint32_t>(word >> 32);
}
std::uint32_t ReceiveIn(std::uint64_t word) { return word >> 16 & 0xffff; }
std::uint32_t ClaimantIn(std::uint64_t word) { return word & 0xffff; }

}  // namespace

std::uint64_t RoomOf(const ibv_recv_wr& request) {
  std::uint64_t room = 0;
  for (int i = 0; i < request.num_sge; ++i) {
    room += request.sg_list[i].length;
  }
  return room;
}

std::optional<std::uint32_t> ClaimReceive(const OwnedReceiveRing& owned,
                                          SharedReceiveRing& ring,
                                          std::uint32_t qp_index,
                                          bool* few_left) {
  const std::uint32_t mask =
      owned.mask.load(std::memory_order_relaxed) & (kMaxQueueDepth - 1);
  for (int i = 0; i < kMostTries; ++i) {
    std::uint32_t number = ring.claimed.load(std::memory_order_acquire);
    const std::uint32_t left =
        owned.posted.load(std::memory_order_acquire) - number;
    if (left == 0) {
      return std::nullopt;
    }
    std::atomic<std::uint64_t>& word = ring.words[number & mask];
    std::uint64_t seen = word.load(std::memory_order_acquire);
    if (NumberIn(seen) != number) {
      continue;  // used again since `claimed` was read
    }
    const bool mine = ClaimantIn(seen) == 0 &&
                      word.compare_exchange_strong(seen, seen | (qp_index + 1));
    // On behalf of the claimant if that is another: it may have died.
    ring.claimed.compare_exchange_strong(number, number + 1);
    if (mine) {
      *few_left = left - 1 < owned.limit.load(std::memory_order_seq_cst);
      return ReceiveIn(seen) % kMaxQueueDepth;
    }
  }
  return std::nullopt;
}

bool TakeSharedReceive(const OwnedLayout& owned, SharedLayout& shared,
                       std::uint32_t qp_index, bool* few_left) {
  const OwnedQueuePair& owned_qp = owned.queue_pairs[qp_index];
  SharedQueuePair& qp = shared.queue_pairs[qp_index];
  const std::uint32_t completed = qp.completed.load(std::memory_order_relaxed);
  if (qp.claimed.load(std::memory_order_relaxed) != completed) {
    return true;
  }
  const std::uint32_t index =
      (owned_qp.shared_receives.load(std::memory_order_relaxed) - 1) %
      kMaxSharedReceiveQueues;
  const std::optional<std::uint32_t> claimed =
      ClaimReceive(owned.receive_rings[index], shared.receive_rings[index],
                   qp_index, few_left);
  if (!claimed) {
    return false;
  }
  const std::uint32_t mask =
      owned_qp.ring_mask.load(std::memory_order_relaxed) & (kMaxQueueDepth - 1);
  shared.completions[qp_index][completed & mask].shared_receive = *claimed;
  // Release: the owner of a queue pair whose requester died reads the entry.
  qp.claimed.store(completed + 1, std::memory_order_release);
  return true;
}

SharedReceiveQueue::SharedReceiveQueue(Context* context, std::uint32_t index,
                                       ProtectionDomain* domain,
                                       const ibv_srq_init_attr& attr)
    : ibv_srq{},
      owned_(context->owned().receive_rings[index]),
      ring_(context->shared().receive_rings[index]),
      depth_(attr.attr.max_wr),
      max_sge_(attr.attr.max_sge),
      pd_id_(domain->id),
      mask_(std::bit_ceil(attr.attr.max_wr) - 1),
      // Goes on where its predecessor ended, so that no late claim of a peer of
      // that one fits.
      posted_(owned_.posted.load()),
      receives_(depth_),
      receive_of_word_(mask_ + 1, kNoReceive) {
  this->context = &context->verbs();
  srq_context = attr.srq_context;
  pd = domain;
  handle = index;
  for (std::uint32_t i = depth_; i-- > 0;) {
    free_.push_back(i);
  }
  owned_.mask = mask_;
  owned_.pd = pd_id_;
  owned_.limit = 0;
  ring_.claimed = posted_;
  for (std::uint32_t i = 0; i <= mask_; ++i) {
    ring_.words[i] = MakeWord(posted_ - 1, 0);
  }
}

// --- Verbs -------------------------------------------------------------------

int SharedReceiveQueue::Post(ibv_recv_wr* requests, ibv_recv_wr** bad) {
  std::lock_guard lock(mutex_);
  for (; requests != nullptr; requests = requests->next) {
    if (requests->num_sge < 0 ||
        static_cast<std::uint32_t>(requests->num_sge) > max_sge_ ||
        free_.empty()) {
      *bad = requests;
      return free_.empty() ? ENOMEM : EINVAL;
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    // Whom the word stood for until now was claimed: else all of the ring would
    // be unclaimed, which is more than can be posted.
    std::uint32_t& stands_for = receive_of_word_[posted_ & mask_];
    if (stands_for != kNoReceive && receives_[stands_for].posted) {
      receives_[stands_for].claimant = ClaimantOf(stands_for);
    }
    stands_for = index;
    ScatterList& receive = owned_.receives[index];
    receive.count = requests->num_sge;
    std::copy_n(requests->sg_list, requests->num_sge, receive.sges);
    receives_[index] = {{requests->wr_id, RoomOf(*requests)}, posted_, true, 0};
    ring_.words[posted_ & mask_].store(MakeWord(posted_, index));
    owned_.posted.store(++posted_);
  }
  return 0;
}

int SharedReceiveQueue::Modify(const ibv_srq_attr& attr, int mask) {
  if ((mask & ~IBV_SRQ_LIMIT) != 0 || attr.srq_limit > depth_) {
    return EINVAL;
  }
  if ((mask & IBV_SRQ_LIMIT) != 0) {
    std::lock_guard lock(mutex_);
    limit_ = attr.srq_limit;
    owned_.limit.store(limit_);
  }
  return 0;
}

void SharedReceiveQueue::Query(ibv_srq_attr* attr) {
  std::lock_guard lock(mutex_);
  *attr = {depth_, max_sge_, limit_};
}

// --- For queue pairs ---------------------------------------------------------

// The queue pair's index + 1, 0: nobody.
std::uint32_t SharedReceiveQueue::ClaimantOf(std::uint32_t receive) const {
  const Receive& posted = receives_[receive];
  const std::uint64_t word = ring_.words[posted.number & mask_].load();
  return NumberIn(word) == posted.number ? ClaimantIn(word) : posted.claimant;
}

bool SharedReceiveQueue::Return(std::uint32_t qp_index, std::uint32_t receive,
                                PostedReceive* posted) {
  std::lock_guard lock(mutex_);
  if (receive >= depth_ || !receives_[receive].posted ||
      ClaimantOf(receive) != qp_index + 1) {
    return false;
  }
  *posted = receives_[receive].own;
  receives_[receive].posted = false;
  free_.push_back(receive);
  return true;
}

bool SharedReceiveQueue::Read(std::uint32_t qp_index, std::uint32_t receive,
                              ScatterList* list) {
  std::lock_guard lock(mutex_);
  if (receive >= depth_ || !receives_[receive].posted ||
      ClaimantOf(receive) != qp_index + 1) {
    return false;
  }
  *list = owned_.receives[receive];
  return true;
}

std::vector<std::uint32_t> SharedReceiveQueue::ClaimedBy(
    std::uint32_t qp_index) {
  std::lock_guard lock(mutex_);
  std::vector<std::uint32_t> claimed;
  for (std::uint32_t i = 0; i < depth_; ++i) {
    if (receives_[i].posted && ClaimantOf(i) == qp_index + 1) {
      claimed.push_back(i);
    }
  }
  std::sort(claimed.begin(), claimed.end(),
            [this](std::uint32_t left, std::uint32_t right) {
              return receives_[left].number - posted_ <
                     receives_[right].number - posted_;
            });
  return claimed;
}

void SharedReceiveQueue::ReturnAll(std::uint32_t qp_index) {
  PostedReceive posted;
  for (const std::uint32_t receive : ClaimedBy(qp_index)) {
    Return(qp_index, receive, &posted);
  }
}

std::uint32_t SharedReceiveQueue::Left() {
  std::uint32_t number = ring_.claimed.load();
  // Past claims whose makers died before they advanced `claimed`.
  while (number != posted_) {
    const std::uint64_t word = ring_.words[number & mask_].load();
    if (NumberIn(word) != number || ClaimantIn(word) == 0) {
      break;
    }
    ++number;
  }
  return posted_ - number;
}

bool SharedReceiveQueue::TakeLimitEvent() {
  std::lock_guard lock(mutex_);
  if (limit_ == 0 || Left() >= limit_) {
    return false;
  }
  limit_ = 0;
  owned_.limit.store(0);
  return true;
}

}  // namespace ringpipe::verbs::soft
