#ifndef RINGPIPE_VERBS_SOFT_RESPONDER_H_
#define RINGPIPE_VERBS_SOFT_RESPONDER_H_

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "verbs/soft/layout.h"
#include "verbs/soft/operation.h"
#include "verbs/soft/peer_link.h"
#include "verbs/soft/remote_memory.h"
#include "verbs/soft/slot_transfer.h"

namespace ringpipe::verbs::soft {

// The responder side of a queue pair, in the hands of whoever executes on it:
// the requester itself where both are on one host, or the owner's network
// thread for a requester on another. Not thread-safe; a queue pair has one
// executor at a time, namely that of the requester it is connected to.
class Responder {
 public:
  struct Identity {
    std::uint32_t qpn = 0;            // the responder's
    std::uint32_t incarnation = 0;    // of it, when it was looked up
    std::uint32_t requester_qpn = 0;  // who asks
    std::uint32_t send_psn = 0;       // its first packet sequence number
    ibv_qp_type type = IBV_QPT_RC;    // of both, or UC
    bool remote = false;              // it is on another host
  };

  // `regions` is the table by which keys are checked. `channel_fd` is the event
  // descriptor of the receives' completion channel, -1: none.
  Responder(std::shared_ptr<PeerLink> link, const OwnedRegion* regions,
            int channel_fd, const Identity& identity);

  // Executes `operation`, all that it does at the responder included. kFailed
  // comes with the requester's status; the responder then is in error too,
  // unless the queue pairs are UC, which lose what they refuse. kInFlight: call
  // again with the same operation, or with another one after EndOperation.
  Step Execute(const Operation& operation, ibv_wc_status* status);

  // The requester is through with its operation, whatever came of it.
  void EndOperation() { slots_.End(); }

  // The requester has learnt its first packet sequence number only now.
  void set_send_psn(std::uint32_t psn) { identity_.send_psn = psn; }

  // The responder was reset and connected again: look it up again.
  bool outdated() const { return outdated_; }
  std::uint32_t incarnation() const { return identity_.incarnation; }
  // Nothing has been executed since it was looked up.
  bool unused() const { return unused_; }

  // ibv_qp_attr::min_rnr_timer of the responder.
  std::uint32_t min_rnr_timer() const;
  PeerLink& link() { return *link_; }

 private:
  bool IsReady(bool accepted);
  Step ExecuteReady(const Operation& operation, ibv_wc_status* status);
  Step ExecuteWrite(const Operation& operation, ibv_wc_status* status);
  Step ExecuteRead(const Operation& operation, ibv_wc_status* status);
  Step ExecuteAtomic(const Operation& operation, ibv_wc_status* status);
  ibv_wc_status CheckRemote(const Operation& operation, std::uint32_t access,
                            RemoteRange* range) const;
  Step Refuse(ibv_wc_status refusal, ibv_wc_status* status);
  Step HasReceive();
  std::uint32_t NextIndex() const;
  const ScatterList& NextReceive() const;
  Step ExecuteSend(const Operation& operation, ibv_wc_status* status);
  ibv_wc_status Scatter(const ScatterList& receive, const Operation& operation,
                        RemoteRange* target, int* ranges) const;
  void CompleteReceive(const Operation& operation, ibv_wc_status status);
  std::uint32_t ReceivePd() const;
  Step Move(Direction direction, const Operation& operation,
            std::span<const RemoteRange> remote);
  Step MoveThroughSlots(const Operation& operation,
                        std::span<const RemoteRange> remote);
  void Fault(std::uint32_t fault);
  void Alert();

  std::shared_ptr<PeerLink> link_;
  std::shared_ptr<Segment> segment_;
  const OwnedQueuePair& owned_;
  SharedQueuePair& shared_;
  const OwnedRegion* const regions_;
  const int channel_fd_;
  Identity identity_;
  const std::uint32_t index_;
  bool outdated_ = false;
  bool unused_ = true;
  SlotTransfer slots_;
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_RESPONDER_H_
