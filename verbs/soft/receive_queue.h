#ifndef RINGPIPE_VERBS_SOFT_RECEIVE_QUEUE_H_
#define RINGPIPE_VERBS_SOFT_RECEIVE_QUEUE_H_

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "verbs/soft/datagrams.h"
#include "verbs/soft/layout.h"
#include "verbs/soft/region_table.h"
#include "verbs/soft/shared_receive_queue.h"

namespace ringpipe::verbs::soft {

// A queue pair's receives as they are in the segment.
struct ReceiveRing {
  OwnedQueuePair& owned;
  SharedQueuePair& shared;
  // Both have room for any depth.
  ScatterList* receives;
  ReceiveCompletion* completions;
};

// The owner's end of a queue pair's receives: those that were posted to it, or
// those that its requester has claimed from a shared receive queue. Post may
// run in one thread, Take in another.
class ReceiveQueue {
 public:
  // `depth` and `max_sge` are limits of Post; with `source`, the shared receive
  // queue, nothing is posted here.
  ReceiveQueue(const ReceiveRing& ring, std::uint32_t qpn, std::uint32_t depth,
               std::uint32_t max_sge,
               std::shared_ptr<SharedReceiveQueue> source);

  // As ibv_post_recv, without regard to the state.
  int Post(ibv_recv_wr* requests, ibv_recv_wr** bad);

  // Completes the oldest receive with a datagram, on the owner's part. False:
  // it is lost, for want of a receive or of room in it.
  bool Fill(const OwnedRegion* regions, std::uint32_t pd,
            std::span<const iovec> parts, const DatagramHeader& header);

  // Up to `count` completions, oldest first. One thread at a time.
  int Take(int count, ibv_wc* completions);

  // How many completions Take would return.
  std::uint32_t waiting() const;
  std::uint32_t depth() const { return depth_; }

  // For a queue pair in ERR: from now on what no peer has completed, and what
  // is posted later, completes with IBV_WC_WR_FLUSH_ERR. False, and nothing
  // done, while a peer is at work on a receive. Of a shared receive queue only
  // what is claimed, no more than that.
  bool TryFlush();
  bool flushed() const { return flushed_.load(std::memory_order_seq_cst); }

  SharedReceiveQueue* source() const { return source_.get(); }
  // What the program did before it posted its receives happens before what the
  // caller, on behalf of a peer, does after this. The peer saw the receives;
  // but to C++ it is no thread of this process, and does not order two that
  // are.
  void SeePosted() const;

  // Empty again; nobody posts, polls or sends meanwhile.
  void Reset();

 private:
  static std::uint64_t Room(const ScatterList& receive,
                            const OwnedRegion* regions, std::uint32_t pd,
                            RegionPlace* places);
  ibv_wc Completed(std::uint32_t position, std::uint64_t room) const;
  bool FindPosted(std::uint32_t position, bool is_completed,
                  std::uint32_t completed, PostedReceive* posted);
  void FindClaimedReceives();
  std::uint32_t Limit() const;

  OwnedQueuePair& owned_;
  SharedQueuePair& shared_;
  ScatterList* const receives_;
  ReceiveCompletion* const completions_;
  const std::uint32_t qpn_;
  const std::shared_ptr<SharedReceiveQueue> source_;
  const std::uint32_t depth_;
  const std::uint32_t max_sge_;
  const std::uint32_t mask_;
  std::unique_ptr<PostedReceive[]> posted_receives_;  // as `receives_`
  std::mutex post_mutex_;
  // Receives ever posted, and ever taken as completions by the user: only then
  // does a receive make room for another, as on hardware.
  std::atomic<std::uint32_t> posted_{0};
  std::atomic<std::uint32_t> taken_{0};
  std::atomic<bool> flushed_{false};
  // Of a shared receive queue, set before `flushed_`: what to flush.
  std::vector<std::uint32_t> claimed_receives_;
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_RECEIVE_QUEUE_H_
