#ifndef RINGPIPE_VERBS_SOFT_SEND_QUEUE_H_
#define RINGPIPE_VERBS_SOFT_SEND_QUEUE_H_

#include <infiniband/verbs.h>
#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "base/deadline.h"
#include "verbs/soft/layout.h"
#include "verbs/soft/operation.h"

namespace ringpipe::verbs::soft {

class Context;
class QueuePair;

// A send request as it was posted, with its inline data copied.
struct SendRequest {
  std::uint64_t wr_id;
  ibv_wr_opcode opcode;
  std::uint32_t flags;
  std::uint32_t immediate;
  std::uint32_t rkey;
  std::uint64_t remote_address;
  std::uint64_t compare_add;
  std::uint64_t swap;
  // Of UD.
  ibv_ah* ah;
  std::uint32_t remote_qpn;
  std::uint32_t remote_qkey;
  std::uint32_t sge_count;
  std::uint32_t inline_bytes;
  std::uint32_t polls_to_wait;  // adversarial mode
  Clock::time_point due;        // adversarial mode: at the latest
  ibv_sge sges[kMaxSge];
};

// The checked local memory of a request.
struct LocalMemory {
  iovec ranges[kMaxSge];
  int count = 0;
  std::uint64_t bytes = 0;
  std::span<const iovec> span() const {
    return {ranges, static_cast<std::size_t>(count)};
  }
};

// The send requests of a queue pair, from post to completion. Requests are
// numbered from 0 in the order in which they were posted; they complete in that
// order. Guarded by the queue pair's mutex, except Retire.
class SendQueue {
 public:
  SendQueue(Context* context, QueuePair* qp, const ibv_qp_cap& limits,
            bool signal_all);

  // As ibv_post_send, whatever the state: only queues.
  int Post(ibv_send_wr* requests, ibv_send_wr** bad);
  // Whether Post would take all of them: 0 or an errno.
  int CheckAll(const ibv_send_wr* requests) const;

  // The user has taken the completion before which `count` requests and that
  // one were posted: they make room. Any thread.
  void Retire(std::uint32_t count) {
    retired_.store(count, std::memory_order_release);
  }

  std::uint32_t depth() const { return depth_; }
  std::uint32_t posted() const { return posted_; }        // ever
  std::uint32_t completed() const { return completed_; }  // ever
  bool empty() const { return posted_ == completed_; }
  SendRequest& at(std::uint32_t number) { return requests_[number & mask_]; }
  SendRequest& oldest() { return at(completed_); }

  // The memory that request `number` names, checked now by its lkeys: against a
  // local write where the request is a READ or an atomic. False:
  // IBV_WC_LOC_PROT_ERR.
  bool Gather(std::uint32_t number, LocalMemory* memory);
  // The same, and whether the request may have that length: IBV_WC_SUCCESS,
  // IBV_WC_LOC_PROT_ERR or IBV_WC_LOC_LEN_ERR.
  ibv_wc_status CheckedGather(std::uint32_t number, LocalMemory* memory);
  // The operation of that request: one fragment, which is the whole message.
  // `memory` must outlive it.
  Operation MakeOperation(std::uint32_t number, const LocalMemory& memory);

  // Ends the oldest request, with a completion where one is due.
  void Complete(ibv_wc_status status);
  void Reset();

 private:
  int Check(const ibv_send_wr& request, std::uint32_t* inline_bytes) const;
  void Store(const ibv_send_wr& request, std::uint32_t inline_bytes);

  Context* const context_;
  QueuePair* const qp_;
  const std::uint32_t depth_;
  const std::uint32_t mask_;  // of `requests_`
  const std::uint32_t max_sge_;
  const std::uint32_t max_inline_;
  const bool signal_all_;
  std::unique_ptr<SendRequest[]> requests_;
  std::unique_ptr<std::byte[]> inline_data_;
  std::uint32_t posted_ = 0;
  std::uint32_t completed_ = 0;
  std::atomic<std::uint32_t> retired_{0};
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_SEND_QUEUE_H_
