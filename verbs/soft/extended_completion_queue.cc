#include "verbs/soft/extended_completion_queue.h"

#include <errno.h>

#include <climits>
#include <memory>

#include "verbs/soft/completion_queue.h"
#include "verbs/soft/context.h"
#include "verbs/soft/verbs_functions.h"

namespace ringpipe::verbs::soft {
namespace {

ExtendedCompletionQueue& Of(ibv_cq_ex* cq) {
  return *static_cast<CompletionQueue*>(cq)->extended();
}

int StartPoll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr) {
  return Of(cq).StartPoll(*attr);
}

int NextPoll(ibv_cq_ex* cq) { return Of(cq).NextPoll(); }

void EndPoll(ibv_cq_ex* cq) { Of(cq).EndPoll(); }

}  // namespace

ExtendedCompletionQueue::ExtendedCompletionQueue(CompletionQueue* cq,
                                                 bool single_threaded)
    : cq_(cq), single_threaded_(single_threaded) {
  SetPointers();
}

void ExtendedCompletionQueue::SetPointers() {
  cq_->start_poll = soft::StartPoll;
  cq_->next_poll = soft::NextPoll;
  cq_->end_poll = soft::EndPoll;
  cq_->read_opcode = [](ibv_cq_ex* cq) { return Of(cq).current().opcode; };
  cq_->read_vendor_err = [](ibv_cq_ex* cq) {
    return Of(cq).current().vendor_err;
  };
  cq_->read_byte_len = [](ibv_cq_ex* cq) { return Of(cq).current().byte_len; };
  cq_->read_imm_data = [](ibv_cq_ex* cq) { return Of(cq).current().imm_data; };
  cq_->read_qp_num = [](ibv_cq_ex* cq) { return Of(cq).current().qp_num; };
  cq_->read_src_qp = [](ibv_cq_ex* cq) { return Of(cq).current().src_qp; };
  cq_->read_wc_flags = [](ibv_cq_ex* cq) { return Of(cq).current().wc_flags; };
  cq_->read_slid = [](ibv_cq_ex* cq) {
    return std::uint32_t{Of(cq).current().slid};
  };
  cq_->read_sl = [](ibv_cq_ex* cq) { return Of(cq).current().sl; };
  cq_->read_dlid_path_bits = [](ibv_cq_ex* cq) {
    return Of(cq).current().dlid_path_bits;
  };
  // What CreateCqEx refuses; a call all the same must not follow a null
  // pointer.
  cq_->read_completion_ts = [](ibv_cq_ex*) { return std::uint64_t{0}; };
  cq_->read_completion_wallclock_ns = [](ibv_cq_ex*) {
    return std::uint64_t{0};
  };
  cq_->read_cvlan = [](ibv_cq_ex*) { return std::uint16_t{0}; };
  cq_->read_flow_tag = [](ibv_cq_ex*) { return std::uint32_t{0}; };
  cq_->read_tm_info = [](ibv_cq_ex*, ibv_wc_tm_info* info) { *info = {}; };
}

int ExtendedCompletionQueue::StartPoll(const ibv_poll_cq_attr& attr) {
  if (attr.comp_mask != 0) {
    return EINVAL;
  }
  if (!single_threaded_) {
    mutex_.lock();
  }
  const int error = NextPoll();
  if (error != 0 && !single_threaded_) {
    mutex_.unlock();  // there will be no EndPoll
  }
  return error;
}

int ExtendedCompletionQueue::NextPoll() {
  const int taken = cq_->Poll(1, &current_);
  if (taken <= 0) {
    return taken == 0 ? ENOENT : EIO;
  }
  cq_->wr_id = current_.wr_id;
  cq_->status = current_.status;
  return 0;
}

void ExtendedCompletionQueue::EndPoll() {
  if (!single_threaded_) {
    mutex_.unlock();
  }
}

// --- Creation ----------------------------------------------------------------

ibv_cq_ex* CreateCqEx(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  const std::uint32_t flags =
      (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 ? attr->flags : 0;
  // No time stamps: peers complete receives, and only they know when.
  if ((attr->comp_mask & ~std::uint32_t{IBV_CQ_INIT_ATTR_MASK_FLAGS}) != 0 ||
      (flags & ~std::uint32_t{IBV_CREATE_CQ_ATTR_SINGLE_THREADED}) != 0 ||
      (attr->wc_flags & ~std::uint64_t{IBV_WC_STANDARD_FLAGS}) != 0) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  if (attr->cqe > INT_MAX || attr->comp_vector > INT_MAX) {
    errno = EINVAL;
    return nullptr;
  }
  ibv_cq* const cq = Context::From(context).CreateCq(
      static_cast<int>(attr->cqe), attr->cq_context, attr->channel,
      static_cast<int>(attr->comp_vector));
  if (cq == nullptr) {
    return nullptr;
  }
  CompletionQueue& own = CompletionQueue::From(cq);
  own.Extend(std::make_unique<ExtendedCompletionQueue>(
      &own, (flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0));
  return &own;
}

}  // namespace ringpipe::verbs::soft
