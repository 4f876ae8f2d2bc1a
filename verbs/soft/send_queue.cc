#include "verbs/soft/send_queue.h"

#include <errno.h>
#include <string.h>

#include <algorithm>
#include <bit>

#include "verbs/soft/context.h"
#include "verbs/soft/queue_pair.h"

namespace ringpipe::verbs::soft {
namespace {

constexpr std::uint32_t kKnownFlags =
    IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;

ibv_wc_opcode CompletionOpcode(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
      return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return IBV_WC_FETCH_ADD;
    default:
      return IBV_WC_SEND;
  }
}

// What a queue pair of this type can ask for.
bool Supports(ibv_qp_type type, ibv_wr_opcode opcode) {
  switch (type) {
    case IBV_QPT_RC:
      return IsSend(opcode) || IsWrite(opcode) || IsAtomic(opcode) ||
             opcode == IBV_WR_RDMA_READ;
    case IBV_QPT_UC:
      return IsSend(opcode) || IsWrite(opcode);
    case IBV_QPT_UD:
      return IsSend(opcode);
    default:
      return false;
  }
}

bool ReadsOrUpdates(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_READ || IsAtomic(opcode);
}

}  // namespace

SendQueue::SendQueue(Context* context, QueuePair* qp, const ibv_qp_cap& limits,
                     bool signal_all)
    : context_(context),
      qp_(qp),
      depth_(limits.max_send_wr),
      mask_(std::bit_ceil(std::max(depth_, 1u)) - 1),
      max_sge_(limits.max_send_sge),
      max_inline_(limits.max_inline_data),
      signal_all_(signal_all),
      requests_(std::make_unique<SendRequest[]>(mask_ + 1)),
      inline_data_(std::make_unique<std::byte[]>((std::size_t{mask_} + 1) *
                                                 max_inline_)) {}

void SendQueue::Reset() {
  posted_ = completed_ = 0;
  retired_ = 0;
}

int SendQueue::Check(const ibv_send_wr& request,
                     std::uint32_t* inline_bytes) const {
  const bool is_inline = (request.send_flags & IBV_SEND_INLINE) != 0;
  if (!Supports(qp_->type(), request.opcode) ||
      (request.send_flags & ~kKnownFlags) != 0 ||
      (is_inline && ReadsOrUpdates(request.opcode)) || request.num_sge < 0 ||
      static_cast<std::uint32_t>(request.num_sge) > max_sge_ ||
      (qp_->type() == IBV_QPT_UD && request.wr.ud.ah == nullptr)) {
    return EINVAL;
  }
  if (posted_ - retired_.load(std::memory_order_acquire) >= depth_) {
    return ENOMEM;
  }
  *inline_bytes = 0;
  if (is_inline) {
    for (int i = 0; i < request.num_sge; ++i) {
      if (request.sg_list[i].length > max_inline_ - *inline_bytes) {
        return ENOMEM;
      }
      *inline_bytes += request.sg_list[i].length;
    }
  }
  return 0;
}

void SendQueue::Store(const ibv_send_wr& request, std::uint32_t inline_bytes) {
  const std::uint32_t slot = posted_ & mask_;
  SendRequest& stored = requests_[slot];
  stored.wr_id = request.wr_id;
  stored.opcode = request.opcode;
  stored.flags = request.send_flags;
  stored.immediate = request.imm_data;
  stored.sge_count = request.num_sge;
  stored.inline_bytes = inline_bytes;
  stored.polls_to_wait = 0;
  if (IsAtomic(request.opcode)) {
    stored.remote_address = request.wr.atomic.remote_addr;
    stored.rkey = request.wr.atomic.rkey;
    stored.compare_add = request.wr.atomic.compare_add;
    stored.swap = request.wr.atomic.swap;
  } else if (qp_->type() == IBV_QPT_UD) {
    stored.ah = request.wr.ud.ah;
    stored.remote_qpn = request.wr.ud.remote_qpn;
    stored.remote_qkey = request.wr.ud.remote_qkey;
  } else {
    stored.remote_address = request.wr.rdma.remote_addr;
    stored.rkey = request.wr.rdma.rkey;
  }
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
  qp_->adversary().Delay(&stored);
  ++posted_;
}

int SendQueue::Post(ibv_send_wr* requests, ibv_send_wr** bad) {
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

int SendQueue::CheckAll(const ibv_send_wr* requests) const {
  const std::uint32_t left =
      depth_ - (posted_ - retired_.load(std::memory_order_acquire));
  for (std::uint32_t count = 1; requests != nullptr;
       requests = requests->next, ++count) {
    std::uint32_t inline_bytes;
    if (const int error = Check(*requests, &inline_bytes); error != 0) {
      return error;
    }
    if (count > left) {
      return ENOMEM;
    }
  }
  return 0;
}

bool SendQueue::Gather(std::uint32_t number, LocalMemory* memory) {
  const SendRequest& request = at(number);
  if ((request.flags & IBV_SEND_INLINE) != 0) {
    if (request.inline_bytes > 0) {
      const std::size_t slot = number & mask_;
      memory->ranges[0] = {inline_data_.get() + slot * max_inline_,
                           request.inline_bytes};
      memory->count = 1;
      memory->bytes = request.inline_bytes;
    }
    return true;
  }
  const std::uint32_t access =
      ReadsOrUpdates(request.opcode) ? IBV_ACCESS_LOCAL_WRITE : 0;
  for (std::uint32_t i = 0; i < request.sge_count; ++i) {
    const ibv_sge& sge = request.sges[i];
    RegionPlace place;
    if (sge.length == 0) {
      continue;
    }
    if (!CheckRegion(context_->regions(), sge.lkey, qp_->pd_id(), access,
                     sge.addr, sge.length, &place)) {
      return false;
    }
    memory->ranges[memory->count++] = {reinterpret_cast<void*>(place.address),
                                       sge.length};
    memory->bytes += sge.length;
  }
  return true;
}

ibv_wc_status SendQueue::CheckedGather(std::uint32_t number,
                                       LocalMemory* memory) {
  if (!Gather(number, memory)) {
    return IBV_WC_LOC_PROT_ERR;
  }
  const bool fits = IsAtomic(at(number).opcode)
                        ? memory->bytes == sizeof(std::uint64_t)
                        : memory->bytes <= kMaxMessageBytes;
  return fits ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR;
}

Operation SendQueue::MakeOperation(std::uint32_t number,
                                   const LocalMemory& memory) {
  const SendRequest& request = at(number);
  Operation operation;
  operation.opcode = request.opcode;
  operation.solicited = (request.flags & IBV_SEND_SOLICITED) != 0;
  operation.immediate = request.immediate;
  operation.remote_address = request.remote_address;
  operation.rkey = request.rkey;
  operation.compare_add = request.compare_add;
  operation.swap = request.swap;
  operation.local = memory.span();
  operation.bytes = operation.message_bytes = memory.bytes;
  return operation;
}

void SendQueue::Complete(ibv_wc_status status) {
  const SendRequest& request = oldest();
  ++completed_;
  if (status == IBV_WC_SUCCESS && !signal_all_ &&
      (request.flags & IBV_SEND_SIGNALED) == 0) {
    return;
  }
  ibv_wc completion = {};
  completion.wr_id = request.wr_id;
  completion.status = status;
  completion.opcode = CompletionOpcode(request.opcode);
  if (status == IBV_WC_SUCCESS && ReadsOrUpdates(request.opcode)) {
    for (std::uint32_t i = 0; i < request.sge_count; ++i) {
      completion.byte_len += request.sges[i].length;
    }
  }
  completion.qp_num = qp_->number();
  qp_->send_queue_cq().PushSend(qp_, completed_, completion);
}

}  // namespace ringpipe::verbs::soft
