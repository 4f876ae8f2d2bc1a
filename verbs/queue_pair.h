#ifndef RINGPIPE_VERBS_QUEUE_PAIR_H_
#define RINGPIPE_VERBS_QUEUE_PAIR_H_

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "verbs/completion_queue.h"
#include "verbs/memory_region.h"

namespace ringpipe::verbs {

// What the other end must know to connect. Plain data, sent as it is between
// ranks of one version.
struct Endpoint {
  std::uint32_t qp_number = 0;
  std::uint32_t packet_sequence = 0;
  std::uint16_t lid = 0;
  std::uint8_t mtu = 0;  // ibv_mtu
  std::uint8_t ethernet = 0;
  std::uint8_t gid[16] = {};
};
static_assert(sizeof(Endpoint) == 28, "no padding, which would be sent too");

// RAII over a reliable-connected ibv_qp: RESET -> INIT at Create, RTR and RTS
// at Connect, ERR at Fail. One thread at a time, except Fail (any thread).
class QueuePair {
 public:
  struct Options {
    int max_send = 64;  // work requests outstanding
    int max_receive = 64;
    int max_send_sge = 2;
    int max_receive_sge = 1;
    int max_inline_bytes = 64;  // 0 is taken where the device has none
    // ibv_qp_attr's encodings: 4.096 us * 2^timeout (0: for ever), repetitions,
    // repetitions after RNR (7: for ever), RNR timer (12: 0.64 ms). 18 is 1.07
    // s, so that a busy host is not taken for a dead one.
    int timeout = 18;
    int retry_count = 2;
    int rnr_retry = 7;
    int min_rnr_timer = 12;
  };

  // In INIT: receives can be posted. Remote writes are allowed; completions of
  // both kinds go to `cq`. kResourceExhausted past a limit of the device's,
  // with what to lower.
  static Result<std::unique_ptr<QueuePair>> Create(
      std::shared_ptr<ProtectionDomain> pd, std::shared_ptr<CompletionQueue> cq,
      const Options& options);
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  // What the other end gives to its Connect.
  Endpoint endpoint() const;
  int max_inline_bytes() const { return max_inline_bytes_; }

  // To RTR and RTS, once. kMismatch where the ends differ in link layer or
  // `remote` is none; kUnavailable where there is no route to it.
  Status Connect(const Endpoint& remote);

  // To ERR: everything outstanding is flushed to the completion queue. Any
  // thread, also twice, but not during the destructor.
  Status Fail();

  ibv_qp* get() const { return qp_; }

 private:
  QueuePair(std::shared_ptr<ProtectionDomain> pd,
            std::shared_ptr<CompletionQueue> cq, const Options& options,
            ibv_qp* qp, int max_inline_bytes);

  Status ToInit();
  Status ToReadyToReceive(const Endpoint& remote);
  Status ToReadyToSend();
  const Device& device() const { return *pd_->device(); }

  std::shared_ptr<ProtectionDomain> pd_;
  std::shared_ptr<CompletionQueue> cq_;
  Options options_;
  ibv_qp* qp_;
  int max_inline_bytes_;
  std::uint32_t packet_sequence_;
};

}  // namespace ringpipe::verbs

#endif  // RINGPIPE_VERBS_QUEUE_PAIR_H_
