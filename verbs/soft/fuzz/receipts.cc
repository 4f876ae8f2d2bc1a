#include "verbs/soft/fuzz/receipts.h"

#include <stdio.h>
#include <stdlib.h>

namespace ringpipe::verbs::soft {
namespace {

void Require(bool condition, const char* what, const ibv_wc& completion) {
  if (!condition) {
    fprintf(stderr,
            "%s: wr_id %llu of queue pair %#x, status %d, opcode %d, %u bytes, "
            "flags %#x\n",
            what, static_cast<unsigned long long>(completion.wr_id),
            completion.qp_num, static_cast<int>(completion.status),
            static_cast<int>(completion.opcode), completion.byte_len,
            completion.wc_flags);
    abort();
  }
}

}  // namespace

std::uint64_t Receipts::AddSend(std::uint32_t queue) {
  posted_[++last_] = {queue, false, 0};
  return last_;
}

std::uint64_t Receipts::AddReceive(std::uint32_t queue, std::uint64_t room) {
  posted_[++last_] = {queue, true, room};
  return last_;
}

void Receipts::Forget(std::uint32_t queue) {
  std::erase_if(posted_, [queue](const auto& entry) {
    return entry.second.queue == queue;
  });
}

void Receipts::Take(const ibv_wc& completion) {
  const auto found = posted_.find(completion.wr_id);
  Require(found != posted_.end(), "never posted, or completed before",
          completion);
  const Posted posted = found->second;
  posted_.erase(found);
  Require(posted.queue == completion.qp_num, "of another queue pair",
          completion);
  Require(completion.status >= IBV_WC_SUCCESS &&
              completion.status <= IBV_WC_TM_RNDV_INCOMPLETE,
          "no such status", completion);
  if (completion.status != IBV_WC_SUCCESS) {
    return;  // the rest is undefined
  }
  Require(((completion.opcode & IBV_WC_RECV) != 0) == posted.is_receive,
          "of the other kind", completion);
  if (posted.is_receive) {
    Require(completion.opcode == IBV_WC_RECV ||
                completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM,
            "no such opcode", completion);
    Require(
        completion.opcode != IBV_WC_RECV || completion.byte_len <= posted.room,
        "more bytes than there is room for", completion);
    Require((completion.wc_flags & ~(IBV_WC_WITH_IMM | IBV_WC_GRH)) == 0,
            "no such flags", completion);
  }
}

}  // namespace ringpipe::verbs::soft
