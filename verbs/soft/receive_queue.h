#ifndef RINGPIPE_VERBS_SOFT_RECEIVE_QUEUE_H_
#define RINGPIPE_VERBS_SOFT_RECEIVE_QUEUE_H_

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "verbs/soft/layout.h"

namespace ringpipe::verbs::soft {

// The owner's end of a queue pair's receives. Post may run in one thread, Take
// in another.
class ReceiveQueue {
 public:
  // `ring` has room for any depth. `depth` and `max_sge` are limits of Post.
  ReceiveQueue(SharedQueuePair& shared, ReceiveEntry* ring, std::uint32_t qpn,
               std::uint32_t depth, std::uint32_t max_sge);

  // As ibv_post_recv, without regard to the state.
  int Post(ibv_recv_wr* requests, ibv_recv_wr** bad);

  // Up to `count` completions, oldest first. One thread at a time.
  int Take(int count, ibv_wc* completions);

  // How many completions Take would return.
  std::uint32_t waiting() const;
  std::uint32_t depth() const { return depth_; }

  // For a queue pair in ERR: from now on what no peer has completed, and what
  // is posted later, completes with IBV_WC_WR_FLUSH_ERR. False, and nothing
  // done, while a peer is at work on a receive.
  bool TryFlush();
  bool flushed() const { return flushed_.load(std::memory_order_seq_cst); }

  // Empty again; nobody posts, polls or sends meanwhile.
  void Reset();

 private:
  ibv_wc Completed(std::uint32_t position) const;
  std::uint32_t Limit() const;

  SharedQueuePair& shared_;
  ReceiveEntry* const ring_;
  const std::uint32_t qpn_;
  const std::uint32_t depth_;
  const std::uint32_t max_sge_;
  const std::uint32_t mask_;
  std::unique_ptr<std::uint64_t[]> wr_ids_;  // no business of peers
  std::mutex post_mutex_;
  // Receives ever posted, and ever taken as completions by the user: only then
  // does a receive make room for another, as on hardware.
  std::atomic<std::uint32_t> posted_{0};
  std::atomic<std::uint32_t> taken_{0};
  std::atomic<bool> flushed_{false};
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_RECEIVE_QUEUE_H_
