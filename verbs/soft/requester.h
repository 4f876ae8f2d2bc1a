#ifndef RINGPIPE_VERBS_SOFT_REQUESTER_H_
#define RINGPIPE_VERBS_SOFT_REQUESTER_H_

#include <infiniband/verbs.h>
#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "base/deadline.h"
#include "verbs/soft/layout.h"
#include "verbs/soft/link_message.h"
#include "verbs/soft/peer_link.h"
#include "verbs/soft/random.h"
#include "verbs/soft/remote_memory.h"

namespace ringpipe::verbs::soft {

class Context;
class QueuePair;

// On whose account requests get on. The adversarial mode executes none because
// of a call other than a poll.
enum class Trigger { kCall, kPoll, kTimer };

// The requester side of a queue pair: holds its send requests and executes
// them, all by itself, on the peer's memory and rings. Everything here is
// private to the process and guarded by the queue pair's mutex (except Retire),
// so that a death leaves no lock behind that others need.
class Requester {
 public:
  Requester(Context* context, QueuePair* qp, const ibv_qp_cap& limits,
            bool signal_all, std::uint64_t adversary_seed);

  // As ibv_post_send in RTS, SQD or ERR: queues. Progress executes.
  int Post(ibv_send_wr* requests, ibv_send_wr** bad);

  // Executes (or flushes, in ERR) what can be executed now. Returns when to try
  // again at the latest; time_point::max(): nothing is outstanding.
  Clock::time_point Progress(Trigger trigger);

  // The user has taken the completion of request `sequence`: it and those
  // before it make room. Any thread.
  void Retire(std::uint32_t sequence) {
    retired_.store(sequence, std::memory_order_release);
  }

  std::uint32_t depth() const { return depth_; }

  // At RTR: whom to talk to. At reset: forget everything.
  void Connect(std::uint32_t dest_qpn);
  void Reset();
  // At RTS, in ibv_qp_attr's encodings.
  void SetRetries(int timeout, int retry_count, int rnr_retry);
  void SetSendPsn(std::uint32_t psn) { send_psn_ = psn; }

  // The peer's answer to an attachment, by the housekeeper.
  void OnAttached(const std::shared_ptr<PeerLink>& link,
                  const LinkMessage& message);

 private:
  struct Request {
    std::uint64_t wr_id;
    std::uint64_t remote_address;
    ibv_wr_opcode opcode;
    std::uint32_t flags;
    std::uint32_t immediate;
    std::uint32_t rkey;
    std::uint32_t sge_count;
    std::uint32_t inline_bytes;
    std::uint32_t polls_to_wait;  // adversarial mode
    Clock::time_point due;        // adversarial mode: at the latest
    ibv_sge sges[kMaxSge];
  };

  // What came of an attempt to execute a request.
  enum class Step {
    kDone,
    kFailed,     // with a status
    kNotReady,   // the peer is not there, or its queue pair is not connected
    kNoReceive,  // RNR
    kInFlight,   // on its way through slots
  };

  // The checked local memory of a request.
  struct Source {
    iovec ranges[kMaxSge];
    int count = 0;
    std::uint64_t bytes = 0;
    std::span<const iovec> span() const {
      return {ranges, static_cast<std::size_t>(count)};
    }
  };

  int Check(const ibv_send_wr& request, std::uint32_t* inline_bytes) const;
  void Store(const ibv_send_wr& request, std::uint32_t inline_bytes);
  bool MustWait(Request& request, Trigger trigger, Clock::time_point* until);

  Step Execute(const Request& request, ibv_wc_status* status);
  bool Gather(const Request& request, Source* source) const;
  bool PeerIsReady();
  Step ExecuteWrite(const Request& request, const Source& source,
                    ibv_wc_status* status);
  Step ExecuteSend(const Request& request, const Source& source,
                   ibv_wc_status* status);
  Step Move(const Source& source, std::span<const RemoteRange> target);
  Step MoveThroughSlots(const Source& source,
                        std::span<const RemoteRange> target);
  bool FillSlots(const Source& source, std::span<const RemoteRange> target);

  ReceiveEntry& NextReceive() const;
  Step HasReceive() const;
  void CompleteReceive(const Request& request, std::uint64_t bytes,
                       ibv_wc_status status);
  void FaultPeer(std::uint32_t fault);
  void AlertPeer();

  void Complete(const Request& request, ibv_wc_status status);
  bool RetriesExhausted(Step step, Clock::time_point now, ibv_wc_status* status,
                        Clock::time_point* again);
  bool TransportExhausted(Clock::time_point now, Clock::time_point* again);
  bool ReceiverExhausted(Clock::time_point now, Clock::time_point* again);
  void ClearWait();

  bool EnsureAttached();

  Context* const context_;
  QueuePair* const qp_;
  const std::uint32_t depth_;
  const std::uint32_t max_sge_;
  const std::uint32_t max_inline_;
  const bool signal_all_;
  Random random_;

  std::unique_ptr<Request[]> requests_;
  std::unique_ptr<std::byte[]> inline_data_;
  std::uint32_t posted_ = 0;    // requests ever posted
  std::uint32_t executed_ = 0;  // and completed, if only internally
  std::atomic<std::uint32_t> retired_{0};

  // The peer. `link_` without `peer_`: asked for.
  std::uint32_t dest_qpn_ = 0;
  std::uint32_t send_psn_ = 0;  // of the first request
  std::shared_ptr<PeerLink> link_;
  std::shared_ptr<Segment> segment_;
  SharedQueuePair* peer_ = nullptr;
  bool needs_attach_ = false;  // what is known of the peer is out of date
  std::uint32_t incarnation_ = 0;
  int channel_fd_ = -1;
  Clock::time_point next_attach_{};
  std::uint64_t slot_bytes_sent_ = 0;  // of the request in flight

  // Retries of the oldest request.
  Clock::duration transport_timeout_{};  // zero: for ever
  int rnr_retry_ = 7;
  enum class Wait { kNone, kTransport, kReceive } wait_ = Wait::kNone;
  Clock::time_point wait_since_{};
  Clock::duration wait_interval_{};
  Clock::time_point rnr_expiry_{};
  int rnr_tries_ = 0;
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_REQUESTER_H_
