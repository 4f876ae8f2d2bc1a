#ifndef RINGPIPE_VERBS_SOFT_REQUESTER_H_
#define RINGPIPE_VERBS_SOFT_REQUESTER_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "base/deadline.h"
#include "verbs/soft/adversary.h"
#include "verbs/soft/link_message.h"
#include "verbs/soft/peer_link.h"
#include "verbs/soft/responder.h"
#include "verbs/soft/retries.h"
#include "verbs/soft/send_queue.h"

namespace ringpipe::verbs::soft {

class Context;
class QueuePair;

// The requester side of a connected queue pair whose peer is on this host: it
// executes the send queue, all by itself, on the peer's memory and rings.
// Everything here is private to the process and guarded by the queue pair's
// mutex, so that a death leaves no lock behind that others need.
class Requester {
 public:
  Requester(Context* context, QueuePair* qp, SendQueue* queue,
            Retries* retries);

  // At RTR: whom to talk to. At reset: forget everything.
  void Connect(std::uint32_t dest_qpn);
  void Reset();
  void SetSendPsn(std::uint32_t psn);

  // Executes (or flushes, in ERR) what can be executed now. Returns when to try
  // again at the latest; time_point::max(): nothing is outstanding.
  Clock::time_point Progress(Trigger trigger);

  // The peer's answer to an attachment, by the housekeeper.
  void OnAttached(const std::shared_ptr<PeerLink>& link,
                  const LinkMessage& message);

 private:
  Step Execute(ibv_wc_status* status);
  void Complete(ibv_wc_status status);
  Step ExecuteOnPeer(const LocalMemory& memory, ibv_wc_status* status);
  Step ExecuteUnreliably(const LocalMemory& memory);
  Step SendDatagram(const LocalMemory& memory, ibv_wc_status* status);
  bool EnsureAttached();
  bool AwaitsFirstAnswer(Clock::time_point now) const;

  Context* const context_;
  QueuePair* const qp_;
  SendQueue& queue_;
  Retries& retries_;

  // The peer. `link_` without `responder_`: asked for.
  std::uint32_t dest_qpn_ = 0;
  std::uint32_t send_psn_ = 0;  // of the first request
  std::shared_ptr<PeerLink> link_;
  std::optional<Responder> responder_;
  Clock::time_point next_attach_{};
  // Of UC: until when a request waits for the attachment.
  Clock::time_point attach_patience_{};
  // Of RC: until when the peer's first answer is waited for, which is no part
  // of what a request takes; the epoch: it has come.
  Clock::time_point connect_patience_{};
  // Of UD: since when the receiver has been full; the epoch: it is not.
  Clock::time_point full_since_{};
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_REQUESTER_H_
