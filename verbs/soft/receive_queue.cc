#include "verbs/soft/receive_queue.h"

#include <errno.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "verbs/soft/region_table.h"
#include "verbs/soft/remote_memory.h"

namespace ringpipe::verbs::soft {

ReceiveQueue::ReceiveQueue(const ReceiveRing& ring, std::uint32_t qpn,
                           std::uint32_t depth, std::uint32_t max_sge,
                           std::shared_ptr<SharedReceiveQueue> source)
    : owned_(ring.owned),
      shared_(ring.shared),
      receives_(ring.receives),
      completions_(ring.completions),
      qpn_(qpn),
      source_(std::move(source)),
      depth_(source_ != nullptr ? source_->depth() : depth),
      max_sge_(max_sge),
      mask_(std::bit_ceil(std::max(depth_, 1u)) - 1),
      posted_receives_(std::make_unique<PostedReceive[]>(mask_ + 1)) {
  owned_.ring_mask = mask_;
  owned_.shared_receives = source_ != nullptr ? source_->index() + 1 : 0;
  Reset();
}

void ReceiveQueue::Reset() {
  if (source_ != nullptr) {
    source_->ReturnAll(IndexOf(qpn_));
    claimed_receives_.clear();
  }
  posted_ = 0;
  taken_ = 0;
  flushed_ = false;
  owned_.posted = 0;
  shared_.completed = 0;
  shared_.claimed = 0;
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
    ScatterList& receive = receives_[posted & mask_];
    receive.count = requests->num_sge;
    std::copy_n(requests->sg_list, requests->num_sge, receive.sges);
    posted_receives_[posted & mask_] = {requests->wr_id, RoomOf(*requests)};
    ++posted;
  }
  posted_.store(posted, std::memory_order_seq_cst);
  owned_.posted.store(posted, std::memory_order_release);
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
  if (source_ != nullptr) {
    const std::uint32_t end =
        completed + (flushed ? claimed_receives_.size() : 0);
    // More than were posted cannot be: the peer is not sane, and gets nothing.
    return end - taken <= depth_ ? end : taken;
  }
  if (flushed) {
    return posted;
  }
  // A peer that claims more than was posted gets nothing.
  return completed - taken <= posted - taken ? completed : taken;
}

std::uint32_t ReceiveQueue::waiting() const {
  return Limit() - taken_.load(std::memory_order_relaxed);
}

void ReceiveQueue::SeePosted() const {
  static_cast<void>(owned_.posted.load(std::memory_order_acquire));
  if (source_ != nullptr) {
    source_->SeePosted();
  }
}

int ReceiveQueue::Take(int count, ibv_wc* completions) {
  const std::uint32_t limit = Limit();
  const std::uint32_t completed =
      shared_.completed.load(std::memory_order_acquire);
  // What came through slots was written by this process's housekeeper, before
  // the peer could complete it.
  owned_.slots_done.load(std::memory_order_acquire);
  std::uint32_t taken = taken_.load(std::memory_order_relaxed);
  int got = 0;
  for (; got < count && taken != limit; ++got, ++taken) {
    const bool is_completed = static_cast<std::int32_t>(completed - taken) > 0;
    PostedReceive posted;
    if (!FindPosted(taken, is_completed, completed, &posted)) {
      --got;  // not a receive of ours
      continue;
    }
    ibv_wc& completion = completions[got];
    if (is_completed) {
      completion = Completed(taken, posted.room);
    } else {
      completion = {};
      completion.status = IBV_WC_WR_FLUSH_ERR;
      completion.opcode = IBV_WC_RECV;
    }
    completion.wr_id = posted.wr_id;
    completion.qp_num = qpn_;
  }
  taken_.store(taken, std::memory_order_release);
  return got;
}

bool ReceiveQueue::FindPosted(std::uint32_t position, bool is_completed,
                              std::uint32_t completed, PostedReceive* posted) {
  if (source_ == nullptr) {
    *posted = posted_receives_[position & mask_];
    return true;
  }
  if (!is_completed && position - completed >= claimed_receives_.size()) {
    return false;  // a peer has moved `completed` since
  }
  const std::uint32_t receive =
      is_completed ? completions_[position & mask_].shared_receive
                   : claimed_receives_[position - completed];
  return source_->Return(IndexOf(qpn_), receive, posted);
}

// A program believes what a completion says, and reads so many bytes: what
// cannot be is an error of that receive.
ibv_wc ReceiveQueue::Completed(std::uint32_t position,
                               std::uint64_t room) const {
  // A copy, which no peer changes any more.
  const ReceiveCompletion entry = completions_[position & mask_];
  const bool has_immediate = entry.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
  ibv_wc completion = {};
  completion.opcode = has_immediate ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  if (entry.status > IBV_WC_TM_RNDV_INCOMPLETE ||
      (entry.status == IBV_WC_SUCCESS && !has_immediate &&
       (entry.opcode != IBV_WC_RECV || entry.byte_count > room))) {
    completion.status = IBV_WC_GENERAL_ERR;
    return completion;
  }
  completion.status = static_cast<ibv_wc_status>(entry.status);
  completion.byte_len = entry.byte_count;
  completion.imm_data = entry.immediate;
  completion.wc_flags = entry.flags & (IBV_WC_WITH_IMM | IBV_WC_GRH);
  completion.src_qp = entry.src_qpn != 0
                          ? entry.src_qpn
                          : owned_.dest_qpn.load(std::memory_order_relaxed);
  completion.slid = entry.slid;
  completion.sl = static_cast<std::uint8_t>(entry.service_level);
  return completion;
}

// Where the memory of `receive` lies, all of it writable, in `places`; returns
// its length, 0 also where a key does not grant it.
std::uint64_t ReceiveQueue::Room(const ScatterList& receive,
                                 const OwnedRegion* regions, std::uint32_t pd,
                                 RegionPlace* places) {
  std::uint64_t room = 0;
  for (std::uint32_t i = 0; i < std::min(receive.count, kMaxSge); ++i) {
    const ibv_sge& sge = receive.sges[i];
    if (sge.length > 0 &&
        !CheckRegion(regions, sge.lkey, pd, IBV_ACCESS_LOCAL_WRITE, sge.addr,
                     sge.length, &places[i])) {
      return 0;
    }
    room += sge.length;
  }
  return room;
}

bool ReceiveQueue::Fill(const OwnedRegion* regions, std::uint32_t pd,
                        std::span<const iovec> parts,
                        const DatagramHeader& header) {
  const std::uint32_t completed =
      shared_.completed.load(std::memory_order_relaxed);
  ReceiveCompletion& entry = completions_[completed & mask_];
  // A copy: the program may post into the ring at any time, and a peer says
  // which entry is meant.
  ScatterList receive = receives_[completed & mask_];
  const std::uint32_t taken = taken_.load(std::memory_order_acquire);
  const std::uint32_t posted = posted_.load(std::memory_order_acquire);
  std::uint64_t bytes = 0;
  for (const iovec& part : parts) {
    bytes += part.iov_len;
  }
  RegionPlace places[kMaxSge];
  const bool has_receive =
      source_ != nullptr
          ? shared_.claimed.load() != completed &&
                source_->Read(IndexOf(qpn_), entry.shared_receive, &receive)
          : completed - taken < posted - taken;
  if (!has_receive || Room(receive, regions, pd, places) < bytes) {
    return false;
  }
  entry.status = IBV_WC_SUCCESS;
  entry.opcode = IBV_WC_RECV;
  entry.byte_count = static_cast<std::uint32_t>(bytes);
  entry.immediate = header.immediate;
  entry.flags = 0;
  if ((header.flags & DatagramHeader::kGrh) != 0) {
    entry.flags |= IBV_WC_GRH;
  }
  if ((header.flags & DatagramHeader::kImmediate) != 0) {
    entry.flags |= IBV_WC_WITH_IMM;
  }
  entry.src_qpn = header.src_qpn;
  entry.slid = header.slid;
  entry.service_level = header.service_level;
  RangeCursor cursor(parts);
  for (std::uint32_t i = 0; bytes > 0; ++i) {
    const std::uint64_t piece =
        std::min<std::uint64_t>(bytes, receive.sges[i].length);
    cursor.CopyTo(reinterpret_cast<std::byte*>(places[i].address), piece);
    bytes -= piece;
  }
  shared_.completed.store(completed + 1, std::memory_order_seq_cst);
  return true;
}

bool ReceiveQueue::TryFlush() {
  if ((shared_.busy.load(std::memory_order_seq_cst) & 1) != 0) {
    return false;
  }
  if (source_ != nullptr) {
    FindClaimedReceives();
  }
  flushed_.store(true, std::memory_order_seq_cst);
  return true;
}

// What is claimed without being completed: no peer is inside any more, so that
// this is final. First `taken_`: what the user takes meanwhile is in both lists
// or in none.
void ReceiveQueue::FindClaimedReceives() {
  const std::uint32_t taken = taken_.load(std::memory_order_seq_cst);
  const std::uint32_t completed = shared_.completed.load();
  claimed_receives_ = source_->ClaimedBy(IndexOf(qpn_));
  for (std::uint32_t i = taken; i != completed && i - taken < depth_; ++i) {
    std::erase(claimed_receives_, completions_[i & mask_].shared_receive);
  }
}

}  // namespace ringpipe::verbs::soft
