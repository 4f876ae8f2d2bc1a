#ifndef RINGPIPE_VERBS_SOFT_EXTENDED_QUEUE_PAIR_H_
#define RINGPIPE_VERBS_SOFT_EXTENDED_QUEUE_PAIR_H_

#include <errno.h>
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

namespace ringpipe::verbs::soft {

class QueuePair;

// The ibv_wr_* functions of a queue pair, behind the pointers of its ibv_qp_ex.
// Work requests are built here, a call for each property, and posted together
// by wr_complete: all or none.
//
// Thread-safe as the interface is: a thread that calls wr_start has the queue
// to itself until its wr_complete or wr_abort.
class ExtendedQueuePair {
 public:
  // The operations that a queue pair of `type` has, as bits of
  // ibv_qp_create_send_ops_flags.
  static std::uint64_t SupportedOperations(ibv_qp_type type);

  // For the operations `send_ops`, which are supported; sets the pointers of
  // `qp`, which keeps the result. `limits` are those of its creation.
  ExtendedQueuePair(QueuePair* qp, const ibv_qp_cap& limits,
                    std::uint64_t send_ops);
  ExtendedQueuePair(const ExtendedQueuePair&) = delete;
  ExtendedQueuePair& operator=(const ExtendedQueuePair&) = delete;

  void Start();
  // 0, or the errno of the first thing that was wrong; nothing is posted then.
  int Complete();
  void Abort();

  // Begins a request. It takes wr_id and wr_flags from the ibv_qp_ex. nullptr:
  // something is wrong, which Complete will say.
  ibv_send_wr* Begin(ibv_wr_opcode opcode, std::uint64_t operation);

  // Properties of the request that was begun last.
  void SetAddress(ibv_ah* ah, std::uint32_t qpn, std::uint32_t qkey);
  void SetSges(std::size_t count, const ibv_sge* sges);
  // The data is copied now.
  void SetInline(std::size_t count, const ibv_data_buf* buffers);

  // What this device does not do: Complete will say so.
  void Refuse() { Fail(EOPNOTSUPP); }

 private:
  void SetPointers();
  void Fail(int error) { error_ = error_ != 0 ? error_ : error; }
  ibv_send_wr* Current();
  ibv_sge* SgesOf(const ibv_send_wr* request);

  QueuePair* const qp_;
  const std::uint64_t send_ops_;
  const std::uint32_t depth_;
  const std::uint32_t max_sge_;
  const std::uint32_t max_inline_;
  std::mutex mutex_;  // held from Start to Complete or Abort
  std::unique_ptr<ibv_send_wr[]> requests_;   // `depth_`
  std::unique_ptr<ibv_sge[]> sges_;           // `max_sge_` for each
  std::unique_ptr<std::byte[]> inline_data_;  // `max_inline_` for each
  std::uint32_t count_ = 0;
  int error_ = 0;
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_EXTENDED_QUEUE_PAIR_H_
