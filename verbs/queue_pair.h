#ifndef RINGPIPE_VERBS_QUEUE_PAIR_H_
#define RINGPIPE_VERBS_QUEUE_PAIR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/status.h"
#include "verbs/completion_queue.h"
#include "verbs/library.h"
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
    // s, so that a busy host is not taken for a dead one. Linux's rdma_rxe also
    // takes a retry_count of 7 for "for ever".
    int timeout = 18;
    int retry_count = 2;
    int rnr_retry = 7;
    int min_rnr_timer = 12;
    // 0 to 15; InfiniBand maps it to a virtual lane, RoCE v1 to a priority.
    int service_level = 0;
    // 0 to 255; of packets with a global route header, which all of RoCE have:
    // its upper six bits are the DSCP that a switch sorts RoCE v2 by.
    int traffic_class = 0;
  };

  // In INIT: receives can be posted. Remote writes are allowed; completions of
  // both kinds go to `cq`. kResourceExhausted past a limit of the device's,
  // with the limit and what to lower.
  static Result<std::unique_ptr<QueuePair>> Create(
      std::shared_ptr<ProtectionDomain> pd, std::shared_ptr<CompletionQueue> cq,
      const Options& options);
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  // What the other end gives to its Connect.
  Endpoint endpoint() const;
  int max_inline_bytes() const { return max_inline_bytes_; }
  int max_send_sge() const { return options_.max_send_sge; }

  // To RTR and RTS, once, at the smaller MTU of both ends. Ethernet is
  // addressed by GID; InfiniBand by LID, with a global route header where the
  // ends are in different subnets or one has no LID. kMismatch where the ends
  // differ in link layer or `remote` is none; kUnavailable where there is no
  // route to it.
  Status Connect(const Endpoint& remote);

  // For a queue pair that was connected by other means (iWARP's, by rdma_cm):
  // the peer's address in words, "192.168.77.2:4711", for the two below.
  void set_peer_address(std::string address) {
    peer_address_ = std::move(address);
  }

  // "rxe0 (GID ::ffff:192.168.77.1) to GID ::ffff:192.168.77.2", or "...,
  // not connected" before Connect. For logs and errors.
  std::string DescribePath() const;

  // What a failed completion of this queue pair means: the status by name, the
  // device and the peer's address, the likely cause and what to do. The caller
  // adds which rank has that address.
  std::string DescribeFailure(const ibv_wc& completion) const;
  // What the device knows of how the peer was lost that did not answer
  // (IBV_WC_RETRY_EXC_ERR).
  PeerLoss Loss() const;

  // To ERR: everything outstanding is flushed to the completion queue. Any
  // thread, also twice, but not during the destructor.
  Status Fail();

  ibv_qp* get() const { return qp_; }

 private:
  QueuePair(std::shared_ptr<ProtectionDomain> pd,
            std::shared_ptr<CompletionQueue> cq, const Options& options);

  Status Open();
  Status ToInit();
  Status ToReadyToReceive(const Endpoint& remote);
  Status ToReadyToSend();
  bool has_peer() const {
    return remote_.has_value() || !peer_address_.empty();
  }
  std::string PeerText() const;  // where there is one
  std::string DescribeSilence() const;
  std::string AdviceOnSilence() const;
  const Device& device() const { return *pd_->device(); }

  std::shared_ptr<ProtectionDomain> pd_;
  std::shared_ptr<CompletionQueue> cq_;
  Options options_;
  ibv_qp* qp_ = nullptr;
  int max_inline_bytes_ = 0;
  std::uint32_t packet_sequence_;
  std::optional<Endpoint> remote_;  // of the last Connect that asked the device
  std::string peer_address_;        // where set_peer_address was called
};

}  // namespace ringpipe::verbs

#endif  // RINGPIPE_VERBS_QUEUE_PAIR_H_
