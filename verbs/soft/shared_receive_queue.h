#ifndef RINGPIPE_VERBS_SOFT_SHARED_RECEIVE_QUEUE_H_
#define RINGPIPE_VERBS_SOFT_SHARED_RECEIVE_QUEUE_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "verbs/soft/layout.h"

namespace ringpipe::verbs::soft {

class Context;
struct ProtectionDomain;

// Takes the oldest receive of `ring` for the queue pair with this index: the
// index in its `receives`, nullopt if there is none. `few_left`: fewer than the
// limit are left, tell the owner. Any number of executors at once, none of
// which ever waits for another. Hot path.
std::optional<std::uint32_t> ClaimReceive(const OwnedReceiveRing& owned,
                                          SharedReceiveRing& ring,
                                          std::uint32_t qp_index,
                                          bool* few_left);

// Claims the oldest receive for the queue pair of `qp_index`, which has a
// shared receive queue, and names it in its own ring as the next one to
// complete; or leaves the one there that an attempt before this one has
// claimed. False if there is none. By the queue pair's executor. Hot path.
bool TakeSharedReceive(const OwnedLayout& owned, SharedLayout& shared,
                       std::uint32_t qp_index, bool* few_left);

// What the owner keeps of a receive, out of reach of peers.
struct PostedReceive {
  std::uint64_t wr_id = 0;
  std::uint64_t room = 0;  // in bytes
};
std::uint64_t RoomOf(const ibv_recv_wr& request);

// An ibv_srq: the owner's end of a receive ring. A receive is posted, then
// claimed by a queue pair, and makes room for another when the queue pair
// returns it. Thread-safe.
class SharedReceiveQueue
    : public ibv_srq,
      public std::enable_shared_from_this<SharedReceiveQueue> {
 public:
  // `attr` has been checked.
  SharedReceiveQueue(Context* context, std::uint32_t index,
                     ProtectionDomain* domain, const ibv_srq_init_attr& attr);

  static SharedReceiveQueue& From(ibv_srq* srq) {
    return *static_cast<SharedReceiveQueue*>(srq);
  }
  ibv_srq* verbs() { return this; }
  // As ReceiveQueue's.
  void SeePosted() const {
    static_cast<void>(owned_.posted.load(std::memory_order_acquire));
  }
  std::uint32_t index() const { return handle; }
  std::uint32_t depth() const { return depth_; }
  std::uint32_t pd_id() const { return pd_id_; }

  // As ibv_post_srq_recv, ibv_modify_srq (which does not resize) and
  // ibv_query_srq.
  int Post(ibv_recv_wr* requests, ibv_recv_wr** bad);
  int Modify(const ibv_srq_attr& attr, int mask);
  void Query(ibv_srq_attr* attr);

  // Gives receive `receive` back, if the queue pair has claimed it, and tells
  // what it was; else false.
  bool Return(std::uint32_t qp_index, std::uint32_t receive,
              PostedReceive* posted);
  // Where receive `receive` is to go, if the queue pair has claimed it; else
  // false.
  bool Read(std::uint32_t qp_index, std::uint32_t receive, ScatterList* list);
  // What the queue pair has claimed and not given back, oldest first.
  std::vector<std::uint32_t> ClaimedBy(std::uint32_t qp_index);
  // Gives all that back.
  void ReturnAll(std::uint32_t qp_index);

  // Whether IBV_EVENT_SRQ_LIMIT_REACHED is due; disarms the limit then.
  bool TakeLimitEvent();

 private:
  struct Receive {
    PostedReceive own;
    std::uint32_t number = 0;  // of the post
    bool posted = false;
    // Taken over from the ring when its word there was used again.
    std::uint32_t claimant = 0;
  };

  std::uint32_t ClaimantOf(std::uint32_t receive) const;
  std::uint32_t Left();

  OwnedReceiveRing& owned_;
  SharedReceiveRing& ring_;
  const std::uint32_t depth_;
  const std::uint32_t max_sge_;
  const std::uint32_t pd_id_;
  const std::uint32_t mask_;
  std::mutex mutex_;  // for what follows
  std::uint32_t posted_;
  std::uint32_t limit_ = 0;  // 0: not armed
  std::vector<Receive> receives_;
  std::vector<std::uint32_t> free_;
  // Which receive each word of the ring stands for, not to be read from there.
  std::vector<std::uint32_t> receive_of_word_;
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_SHARED_RECEIVE_QUEUE_H_
