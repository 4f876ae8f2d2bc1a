#include "verbs/soft/receive_queue.h"

#include <errno.h>

#include <algorithm>
#include <bit>

namespace ringpipe::verbs::soft {

ReceiveQueue::ReceiveQueue(SharedQueuePair& shared, ReceiveEntry* ring,
                           std::uint32_t qpn, std::uint32_t depth,
                           std::uint32_t max_sge)
    : shared_(shared),
      ring_(ring),
      qpn_(qpn),
      depth_(depth),
      max_sge_(max_sge),
      mask_(std::bit_ceil(std::max(depth, 1u)) - 1),
      wr_ids_(std::make_unique<std::uint64_t[]>(mask_ + 1)) {
  shared_.ring_mask = mask_;
  Reset();
}

void ReceiveQueue::Reset() {
  posted_ = 0;
  taken_ = 0;
  flushed_ = false;
  shared_.posted = 0;
  shared_.completed = 0;
}

int ReceiveQueue::Post(ibv_recv_wr* requests, ibv_recv_wr** bad) {
  std::lock_guard lock(post_mutex_);
  std::uint32_t posted = posted_.load(std::memory_order_relaxed);
  int error = 0;
  for (; requests != nullptr; requests = requests->next) {
    if (requests->num_sge < 0 ||
        static_cast<std::uint32_t>(requests->num_sge) > max_sge_) {
      error = EINVAL;
      break;
    }
    if (posted - taken_.load(std::memory_order_acquire) >= depth_) {
      error = ENOMEM;
      break;
    }
    ReceiveEntry& entry = ring_[posted & mask_];
    entry.sge_count = requests->num_sge;
    std::copy_n(requests->sg_list, requests->num_sge, entry.sges);
    wr_ids_[posted & mask_] = requests->wr_id;
    ++posted;
  }
  posted_.store(posted, std::memory_order_seq_cst);
  shared_.posted.store(posted, std::memory_order_release);
  if (error != 0) {
    *bad = requests;
  }
  return error;
}

std::uint32_t ReceiveQueue::Limit() const {
  const std::uint32_t taken = taken_.load(std::memory_order_relaxed);
  // `flushed_` first: after it, `completed` no longer moves.
  const bool flushed = flushed_.load(std::memory_order_seq_cst);
  const std::uint32_t posted = posted_.load(std::memory_order_acquire);
  const std::uint32_t completed =
      shared_.completed.load(std::memory_order_seq_cst);
  if (flushed) {
    return posted;
  }
  // A peer that claims more than was posted gets nothing.
  return completed - taken <= posted - taken ? completed : taken;
}

std::uint32_t ReceiveQueue::waiting() const {
  return Limit() - taken_.load(std::memory_order_relaxed);
}

int ReceiveQueue::Take(int count, ibv_wc* completions) {
  const std::uint32_t limit = Limit();
  const std::uint32_t completed =
      shared_.completed.load(std::memory_order_acquire);
  // What came through slots was written by this process's housekeeper, before
  // the peer could complete it.
  shared_.slots_done.load(std::memory_order_acquire);
  std::uint32_t taken = taken_.load(std::memory_order_relaxed);
  int got = 0;
  for (; got < count && taken != limit; ++got, ++taken) {
    ibv_wc& completion = completions[got];
    if (static_cast<std::int32_t>(completed - taken) > 0) {
      completion = Completed(taken);
    } else {
      completion = {};
      completion.status = IBV_WC_WR_FLUSH_ERR;
      completion.opcode = IBV_WC_RECV;
    }
    completion.wr_id = wr_ids_[taken & mask_];
    completion.qp_num = qpn_;
  }
  taken_.store(taken, std::memory_order_release);
  return got;
}

ibv_wc ReceiveQueue::Completed(std::uint32_t position) const {
  const ReceiveEntry& entry = ring_[position & mask_];
  ibv_wc completion = {};
  completion.status = static_cast<ibv_wc_status>(entry.status);
  completion.opcode = static_cast<ibv_wc_opcode>(entry.opcode);
  completion.byte_len = entry.byte_count;
  completion.imm_data = entry.immediate;
  completion.wc_flags = entry.flags;
  completion.src_qp = shared_.dest_qpn.load(std::memory_order_relaxed);
  return completion;
}

bool ReceiveQueue::TryFlush() {
  if ((shared_.busy.load(std::memory_order_seq_cst) & 1) != 0) {
    return false;
  }
  flushed_.store(true, std::memory_order_seq_cst);
  return true;
}

}  // namespace ringpipe::verbs::soft
