#include "verbs/soft/extended_queue_pair.h"

#include <errno.h>
#include <string.h>

#include <algorithm>

#include "verbs/soft/context.h"
#include "verbs/soft/queue_pair.h"
#include "verbs/soft/verbs_functions.h"

namespace ringpipe::verbs::soft {
namespace {

ExtendedQueuePair& Of(ibv_qp_ex* qp) {
  return *static_cast<QueuePair*>(qp)->extended();
}

// --- Behind the pointers -----------------------------------------------------

void Start(ibv_qp_ex* qp) { Of(qp).Start(); }

int Complete(ibv_qp_ex* qp) { return Of(qp).Complete(); }

void Abort(ibv_qp_ex* qp) { Of(qp).Abort(); }

void BeginRdma(ibv_qp_ex* qp, ibv_wr_opcode opcode, std::uint64_t operation,
               std::uint32_t rkey, std::uint64_t address, __be32 immediate) {
  if (ibv_send_wr* request = Of(qp).Begin(opcode, operation)) {
    request->imm_data = immediate;
    request->wr.rdma.remote_addr = address;
    request->wr.rdma.rkey = rkey;
  }
}

void BeginAtomic(ibv_qp_ex* qp, ibv_wr_opcode opcode, std::uint64_t operation,
                 std::uint32_t rkey, std::uint64_t address,
                 std::uint64_t compare_add, std::uint64_t swap) {
  if (ibv_send_wr* request = Of(qp).Begin(opcode, operation)) {
    request->wr.atomic.remote_addr = address;
    request->wr.atomic.rkey = rkey;
    request->wr.atomic.compare_add = compare_add;
    request->wr.atomic.swap = swap;
  }
}

void Send(ibv_qp_ex* qp) { Of(qp).Begin(IBV_WR_SEND, IBV_QP_EX_WITH_SEND); }

void SendImm(ibv_qp_ex* qp, __be32 immediate) {
  if (ibv_send_wr* request =
          Of(qp).Begin(IBV_WR_SEND_WITH_IMM, IBV_QP_EX_WITH_SEND_WITH_IMM)) {
    request->imm_data = immediate;
  }
}

void RdmaWrite(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
  BeginRdma(qp, IBV_WR_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_WRITE, rkey, address, 0);
}

void RdmaWriteImm(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address,
                  __be32 immediate) {
  BeginRdma(qp, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
            rkey, address, immediate);
}

void RdmaRead(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
  BeginRdma(qp, IBV_WR_RDMA_READ, IBV_QP_EX_WITH_RDMA_READ, rkey, address, 0);
}

void AtomicCompareSwap(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address,
                       std::uint64_t compare, std::uint64_t swap) {
  BeginAtomic(qp, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
              rkey, address, compare, swap);
}

void AtomicFetchAdd(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address,
                    std::uint64_t add) {
  BeginAtomic(qp, IBV_WR_ATOMIC_FETCH_AND_ADD,
              IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, rkey, address, add, 0);
}

void SetUdAddr(ibv_qp_ex* qp, ibv_ah* ah, std::uint32_t qpn,
               std::uint32_t qkey) {
  Of(qp).SetAddress(ah, qpn, qkey);
}

void SetSge(ibv_qp_ex* qp, std::uint32_t lkey, std::uint64_t address,
            std::uint32_t length) {
  const ibv_sge sge = {.addr = address, .length = length, .lkey = lkey};
  Of(qp).SetSges(1, &sge);
}

void SetSgeList(ibv_qp_ex* qp, std::size_t count, const ibv_sge* sges) {
  Of(qp).SetSges(count, sges);
}

void SetInlineData(ibv_qp_ex* qp, void* address, std::size_t length) {
  const ibv_data_buf buffer = {.addr = address, .length = length};
  Of(qp).SetInline(1, &buffer);
}

void SetInlineDataList(ibv_qp_ex* qp, std::size_t count,
                       const ibv_data_buf* buffers) {
  Of(qp).SetInline(count, buffers);
}

}  // namespace

// --- Building requests -------------------------------------------------------

std::uint64_t ExtendedQueuePair::SupportedOperations(ibv_qp_type type) {
  constexpr std::uint64_t kSends =
      IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
  constexpr std::uint64_t kWrites =
      IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
  switch (type) {
    case IBV_QPT_RC:
      return kSends | kWrites | IBV_QP_EX_WITH_RDMA_READ |
             IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
             IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    case IBV_QPT_UC:
      return kSends | kWrites;
    case IBV_QPT_UD:
      return kSends;
    default:
      return 0;
  }
}

ExtendedQueuePair::ExtendedQueuePair(QueuePair* qp, const ibv_qp_cap& limits,
                                     std::uint64_t send_ops)
    : qp_(qp),
      send_ops_(send_ops),
      depth_(std::max(limits.max_send_wr, 1u)),
      // Inline data takes an entry too.
      max_sge_(std::max(limits.max_send_sge, 1u)),
      max_inline_(limits.max_inline_data),
      requests_(std::make_unique_for_overwrite<ibv_send_wr[]>(depth_)),
      sges_(std::make_unique_for_overwrite<ibv_sge[]>(std::size_t{depth_} *
                                                      max_sge_)),
      inline_data_(std::make_unique_for_overwrite<std::byte[]>(
          std::size_t{depth_} * max_inline_)) {
  SetPointers();
}

void ExtendedQueuePair::SetPointers() {
  qp_->wr_start = soft::Start;
  qp_->wr_complete = soft::Complete;
  qp_->wr_abort = soft::Abort;
  qp_->wr_send = Send;
  qp_->wr_send_imm = SendImm;
  qp_->wr_rdma_write = RdmaWrite;
  qp_->wr_rdma_write_imm = RdmaWriteImm;
  qp_->wr_rdma_read = RdmaRead;
  qp_->wr_atomic_cmp_swp = AtomicCompareSwap;
  qp_->wr_atomic_fetch_add = AtomicFetchAdd;
  qp_->wr_set_ud_addr = SetUdAddr;
  qp_->wr_set_sge = SetSge;
  qp_->wr_set_sge_list = SetSgeList;
  qp_->wr_set_inline_data = SetInlineData;
  qp_->wr_set_inline_data_list = SetInlineDataList;
  // Programs ask for these at creation, in vain; a call all the same must not
  // follow a null pointer.
  qp_->wr_bind_mw = [](ibv_qp_ex* qp, ibv_mw*, std::uint32_t,
                       const ibv_mw_bind_info*) { Of(qp).Refuse(); };
  qp_->wr_local_inv = [](ibv_qp_ex* qp, std::uint32_t) { Of(qp).Refuse(); };
  qp_->wr_send_inv = [](ibv_qp_ex* qp, std::uint32_t) { Of(qp).Refuse(); };
  qp_->wr_send_tso = [](ibv_qp_ex* qp, void*, std::uint16_t, std::uint16_t) {
    Of(qp).Refuse();
  };
  qp_->wr_set_xrc_srqn = [](ibv_qp_ex* qp, std::uint32_t) { Of(qp).Refuse(); };
  qp_->wr_atomic_write = [](ibv_qp_ex* qp, std::uint32_t, std::uint64_t,
                            const void*) { Of(qp).Refuse(); };
}

void ExtendedQueuePair::Start() {
  mutex_.lock();
  count_ = 0;
  error_ = 0;
}

int ExtendedQueuePair::Complete() {
  int error = error_;
  if (error == 0 && count_ > 0) {
    for (std::uint32_t i = 0; i + 1 < count_; ++i) {
      requests_[i].next = &requests_[i + 1];
    }
    ibv_send_wr* bad;
    error = qp_->PostSend(&requests_[0], &bad, /*all_or_none=*/true);
  }
  mutex_.unlock();
  return error;
}

void ExtendedQueuePair::Abort() { mutex_.unlock(); }

ibv_send_wr* ExtendedQueuePair::Begin(ibv_wr_opcode opcode,
                                      std::uint64_t operation) {
  if ((send_ops_ & operation) == 0) {
    Fail(EINVAL);  // not asked for at creation
  } else if (count_ == depth_) {
    Fail(ENOMEM);
  }
  if (error_ != 0) {
    return nullptr;
  }
  ibv_send_wr* request = &requests_[count_++];
  *request = {};
  request->opcode = opcode;
  request->wr_id = qp_->wr_id;
  // Whether data is inline is said by how it is set.
  request->send_flags =
      qp_->wr_flags & ~static_cast<unsigned int>(IBV_SEND_INLINE);
  request->sg_list = SgesOf(request);
  return request;
}

ibv_send_wr* ExtendedQueuePair::Current() {
  if (count_ == 0) {
    Fail(EINVAL);
  }
  return error_ == 0 ? &requests_[count_ - 1] : nullptr;
}

ibv_sge* ExtendedQueuePair::SgesOf(const ibv_send_wr* request) {
  return &sges_[static_cast<std::size_t>(request - requests_.get()) * max_sge_];
}

void ExtendedQueuePair::SetAddress(ibv_ah* ah, std::uint32_t qpn,
                                   std::uint32_t qkey) {
  if (ibv_send_wr* request = Current()) {
    request->wr.ud.ah = ah;
    request->wr.ud.remote_qpn = qpn;
    request->wr.ud.remote_qkey = qkey;
  }
}

void ExtendedQueuePair::SetSges(std::size_t count, const ibv_sge* sges) {
  ibv_send_wr* request = Current();
  if (request == nullptr) {
    return;
  }
  if (count > max_sge_) {
    Fail(EINVAL);
    return;
  }
  std::copy_n(sges, count, SgesOf(request));
  request->num_sge = static_cast<int>(count);
}

void ExtendedQueuePair::SetInline(std::size_t count,
                                  const ibv_data_buf* buffers) {
  ibv_send_wr* request = Current();
  if (request == nullptr) {
    return;
  }
  std::byte* const start =
      inline_data_.get() + std::size_t{count_ - 1} * max_inline_;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (buffers[i].length > max_inline_ - bytes) {
      Fail(EINVAL);
      return;
    }
    if (buffers[i].length > 0) {
      memcpy(start + bytes, buffers[i].addr, buffers[i].length);
    }
    bytes += buffers[i].length;
  }
  request->send_flags |= IBV_SEND_INLINE;
  // One entry for all of it; an empty message has none.
  *SgesOf(request) = {.addr = reinterpret_cast<std::uint64_t>(start),
                      .length = static_cast<std::uint32_t>(bytes),
                      .lkey = 0};
  request->num_sge = bytes > 0 ? 1 : 0;
}

// --- Creation ----------------------------------------------------------------

ibv_qp* CreateQpEx(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  constexpr std::uint32_t kKnown = IBV_QP_INIT_ATTR_PD |
                                   IBV_QP_INIT_ATTR_CREATE_FLAGS |
                                   IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  const std::uint32_t mask = attr->comp_mask;
  const std::uint64_t send_ops =
      (mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0 ? attr->send_ops_flags : 0;
  if ((mask & IBV_QP_INIT_ATTR_PD) == 0 || attr->pd == nullptr ||
      attr->pd->context != context) {
    errno = EINVAL;
    return nullptr;
  }
  if ((mask & ~kKnown) != 0 ||
      ((mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 &&
       attr->create_flags != 0) ||
      (send_ops & ~ExtendedQueuePair::SupportedOperations(attr->qp_type)) !=
          0) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  // The older structure is what the newer one begins with.
  auto* plain = reinterpret_cast<ibv_qp_init_attr*>(attr);
  ibv_qp* const qp = Context::From(context).CreateQp(attr->pd, plain);
  if (qp != nullptr && (mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0) {
    QueuePair::From(qp).Extend(std::make_unique<ExtendedQueuePair>(
        &QueuePair::From(qp), attr->cap, send_ops));
  }
  return qp;
}

ibv_qp_ex* QpToQpEx(ibv_qp* qp) {
  QueuePair& own = QueuePair::From(qp);
  return own.extended() != nullptr ? &own : nullptr;
}

}  // namespace ringpipe::verbs::soft
