#ifndef RINGPIPE_VERBS_SOFT_QUEUE_PAIR_H_
#define RINGPIPE_VERBS_SOFT_QUEUE_PAIR_H_

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/deadline.h"
#include "verbs/library.h"
#include "verbs/soft/adversary.h"
#include "verbs/soft/completion_queue.h"
#include "verbs/soft/datagrams.h"
#include "verbs/soft/extended_queue_pair.h"
#include "verbs/soft/layout.h"
#include "verbs/soft/network/remote_peer.h"
#include "verbs/soft/options.h"
#include "verbs/soft/receive_queue.h"
#include "verbs/soft/requester.h"
#include "verbs/soft/retries.h"
#include "verbs/soft/send_queue.h"
#include "verbs/soft/shared_receive_queue.h"
#include "verbs/soft/slot_transfer.h"

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

  // The ibv_wr_* interface: after creation, before anybody else knows of this.
  void Extend(std::unique_ptr<ExtendedQueuePair> extended) {
    extended_ = std::move(extended);
  }
  ExtendedQueuePair* extended() { return extended_.get(); }

  int Modify(const ibv_qp_attr& attr, int mask);
  void Query(ibv_qp_attr* attr, ibv_qp_init_attr* init_attr);
  // All or, if `all_or_none` and one is wrong or there is no room, none.
  int PostSend(ibv_send_wr* requests, ibv_send_wr** bad,
               bool all_or_none = false);
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

  // For the network thread: runs `event` with the mutex held, and lets what
  // waited for it get on; false if `peer` is no longer the peer.
  template <typename Event>
  bool WithRemote(const RemotePeer* peer, Event event);
  // The peer on another host, if that is what it is connected to, and it
  // receives.
  std::shared_ptr<RemotePeer> FindRemote(const QueuePairAddress& address);

  // A datagram for this UD queue pair: fills a receive, or is lost.
  void ReceiveDatagram(const DatagramHeader& header,
                       std::span<const std::byte> payload);

  // Library::describe_loss.
  PeerLoss DescribeLoss();
  const Options& options() const;

  // The housekeeper's side of slots: copies what a peer has filled. Returns
  // whether there was something.
  bool ServeSlots();

  void OnAttached(const std::shared_ptr<PeerLink>& link,
                  const LinkMessage& message);

  // Returns when whoever was executing for this queue pair has left it.
  void WaitForLocalUse();

  std::uint32_t index() const { return index_; }
  std::uint32_t pd_id() const { return pd_id_; }
  std::uint32_t qkey() const { return attr_.qkey; }  // of UD
  SendQueue& send_queue() { return send_queue_; }
  ReceiveQueue& receives() { return receives_; }
  OwnedQueuePair& owned() { return owned_; }
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
  // After an error of the send queue: ERR, or SQE where the receives go on.
  void EnterSendErrorState();

 private:
  void SetState(ibv_qp_state state);
  void FailLocked(int event);
  int CheckValues(const ibv_qp_attr& attr, int mask) const;
  void StoreAttributes(const ibv_qp_attr& attr, int mask);
  int Reset();
  int ConnectToPeer();
  void TryFlushReceives();
  Clock::time_point ProgressLocked(Trigger trigger);

  Context* const context_;
  const std::uint32_t index_;
  const std::uint32_t pd_id_;
  OwnedQueuePair& owned_;
  SharedQueuePair& shared_;
  std::mutex mutex_;
  // The truth; `owned_.state` is what peers see of it, ibv_qp::state what the
  // user does.
  std::atomic<ibv_qp_state> state_{IBV_QPS_RESET};
  ibv_qp_attr attr_ = {};
  ibv_qp_init_attr init_attr_;
  Adversary adversary_;
  SendQueue send_queue_;
  Retries retries_;
  Requester requester_;                 // of a peer on this host
  std::shared_ptr<RemotePeer> remote_;  // or the peer on another; else nullptr
  ReceiveQueue receives_;
  bool stalled_ = false;
  std::unique_ptr<ExtendedQueuePair> extended_;
  std::mutex slots_mutex_;
};

template <typename Event>
bool QueuePair::WithRemote(const RemotePeer* peer, Event event) {
  std::lock_guard lock(mutex_);
  if (remote_ == nullptr || remote_.get() != peer) {
    return false;
  }
  event(*remote_);
  ProgressLocked(Trigger::kCall);
  return true;
}

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_QUEUE_PAIR_H_
