#ifndef RINGPIPE_VERBS_SOFT_QUEUE_PAIR_H_
#define RINGPIPE_VERBS_SOFT_QUEUE_PAIR_H_

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/deadline.h"
#include "verbs/soft/adversary.h"
#include "verbs/soft/completion_queue.h"
#include "verbs/soft/layout.h"
#include "verbs/soft/receive_queue.h"
#include "verbs/soft/requester.h"
#include "verbs/soft/retries.h"
#include "verbs/soft/send_queue.h"

namespace ringpipe::verbs::soft {

class Context;
struct ProtectionDomain;

// An ibv_qp of type RC: the state machine, around a requester (send queue) and
// a receive queue. Thread-safe.
//
// Locks, in the order in which they are taken: mutex_ (state and send side),
// the receive queue's, a completion queue's. Peers take none.
class QueuePair : public ibv_qp_ex {
 public:
  // `attr` has been checked.
  QueuePair(Context* context, std::uint32_t index, ProtectionDomain* pd,
            const ibv_qp_init_attr& attr, std::uint64_t adversary_seed);

  static QueuePair& From(ibv_qp* qp) {
    return *static_cast<QueuePair*>(reinterpret_cast<ibv_qp_ex*>(qp));
  }
  ibv_qp* verbs() { return &qp_base; }
  std::uint32_t number() const { return qp_base.qp_num; }
  ibv_qp_type type() const { return qp_base.qp_type; }

  int Modify(const ibv_qp_attr& attr, int mask);
  void Query(ibv_qp_attr* attr, ibv_qp_init_attr* init_attr);
  int PostSend(ibv_send_wr* requests, ibv_send_wr** bad);
  int PostReceive(ibv_recv_wr* requests, ibv_recv_wr** bad);

  // Let outstanding requests and flushes get on, unless another thread is at it
  // already. Returns when the next timer is due, time_point::max(): none.
  Clock::time_point ProgressByTimer();
  void ProgressByPoll();

  // Ends everything that needs another object. No peer is inside any more if
  // this returns true; else one may still be writing (it is stopped, say).
  bool Shut();

  // Error state, by overrun of a completion queue or by a peer's finding, and
  // the ibv_event_type `event` unless it is in error already; -1: no event.
  void Fail(int event);
  // Deals with what a peer left in `fault`.
  void HandleFault();
  // The process of the requester has died, at whatever instruction.
  void OnPeerDeath();

  // The housekeeper's side of slots: copies what a peer has filled. Returns
  // whether there was something.
  bool ServeSlots();

  void OnAttached(const std::shared_ptr<PeerLink>& link,
                  const LinkMessage& message);

  // Returns when whoever was executing for this queue pair has left it.
  void WaitForLocalUse();

  std::uint32_t index() const { return index_; }
  std::uint32_t pd_id() const { return pd_id_; }
  SendQueue& send_queue() { return send_queue_; }
  ReceiveQueue& receives() { return receives_; }
  SharedQueuePair& shared() { return shared_; }
  CompletionQueue& receive_queue_cq() {
    return CompletionQueue::From(qp_base.recv_cq);
  }
  CompletionQueue& send_queue_cq() {
    return CompletionQueue::From(qp_base.send_cq);
  }

  // For the requester and the send queue, with the mutex held.
  Adversary& adversary() { return adversary_; }
  ibv_qp_state current_state() const { return state_.load(); }
  void EnterErrorState();

 private:
  void SetState(ibv_qp_state state);
  int CheckValues(const ibv_qp_attr& attr, int mask) const;
  void StoreAttributes(const ibv_qp_attr& attr, int mask);
  int Reset();
  void TryFlushReceives();
  Clock::time_point ProgressLocked(Trigger trigger);

  Context* const context_;
  const std::uint32_t index_;
  const std::uint32_t pd_id_;
  SharedQueuePair& shared_;
  std::mutex mutex_;
  // The truth; `shared_.state` is what peers see of it, ibv_qp::state what the
  // user does.
  std::atomic<ibv_qp_state> state_{IBV_QPS_RESET};
  ibv_qp_attr attr_ = {};
  ibv_qp_init_attr init_attr_;
  Adversary adversary_;
  SendQueue send_queue_;
  Retries retries_;
  Requester requester_;
  ReceiveQueue receives_;
  bool stalled_ = false;
  std::mutex slots_mutex_;
};

// Waits until the peer that is inside `qp`, if one is, has left; false if it
// has not by the deadline.
bool WaitForPeer(const SharedQueuePair& qp, Deadline deadline);

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_QUEUE_PAIR_H_
