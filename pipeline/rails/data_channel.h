#ifndef RINGPIPE_PIPELINE_RAILS_DATA_CHANNEL_H_
#define RINGPIPE_PIPELINE_RAILS_DATA_CHANNEL_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/status.h"
#include "memory_pool/registration.h"
#include "pipeline/connection.h"
#include "pipeline/fifo.h"
#include "pipeline/rails/work_id.h"
#include "verbs/queue_pair.h"

namespace ringpipe {

// The queue pair to one peer on one rail, for data. Work requests are collected
// by Add... and posted as one list by Post. One thread at a time, except Fail.
class DataChannel {
 public:
  // Work requests in a list; the source of a send is held until the last of
  // its list has been sent.
  static constexpr int kBatch = 16;

  // Of the source of a send.
  static constexpr int kMostPieces = 8;

  // `queue_pair` has room for `max_sends` and `max_receives`; neither is below
  // kBatch, and of the pieces of a send no more than kMostPieces are used. Rail
  // `rail` of the connection to `peer` is `key` among the communicator's.
  //
  // A send's completion says that its source is free: the last of a list asks
  // for one, for all before it, or (completes_every_send) each. Linux's siw
  // (software iWARP) needs the latter: where no completion is asked for it
  // hands TCP the pages themselves, which TCP may read again after a later
  // send's completion, up to the peer's acknowledgement (siw_qp_tx.c, "Allow
  // direct sending out of user buffer").
  DataChannel(std::unique_ptr<verbs::QueuePair> queue_pair, int peer, int rail,
              int key, int max_sends, int max_receives,
              bool completes_every_send);

  verbs::QueuePair& queue_pair() { return *queue_pair_; }
  const verbs::QueuePair& queue_pair() const { return *queue_pair_; }

  // --- Sending ---------------------------------------------------------------
  bool CanAddSend() const {
    return new_sends_ < kBatch && sends_outstanding() < max_sends_;
  }
  int pieces() const {
    return std::min(kMostPieces, queue_pair_->max_send_sge());
  }
  // `source` stays as it is until the send has completed.
  void AddSend(Instance instance, Pieces source);
  Status PostSends();

  std::uint64_t messages_sent() const { return messages_sent_; }
  // Sends (probes too) that have not completed.
  int sends_outstanding() const {
    return static_cast<int>(in_flight_.size()) + new_sends_;
  }
  // A completion of send `number`: calls `sent(instance)` for it and for all
  // before it.
  template <typename Sent>
  void SendCompleted(std::uint32_t number, Sent sent) {
    while (!in_flight_.empty() &&
           static_cast<std::int32_t>(number - completed_) >= 0) {
      const std::optional<Instance> instance = in_flight_.pop();
      ++completed_;
      if (instance.has_value()) {
        sent(*instance);
      }
    }
  }

  // A write of no bytes to memory that the peer has registered: fails where the
  // peer is gone (but see RailConnection::Probe). Only while nothing else is
  // outstanding.
  Status Probe(std::uint64_t remote_address, std::uint32_t rkey);

  // --- Receiving -------------------------------------------------------------
  bool CanAddReceive() const {
    return new_receives_ < kBatch && receives_posted() < max_receives_;
  }
  void AddReceive(Instance instance, const Memory& target);
  Status PostReceives();

  bool HasNewReceives() const { return new_receives_ > 0; }
  int receives_posted() const {
    return static_cast<int>(posted_.size()) + new_receives_;
  }
  // Messages arrive in the order in which receives were posted.
  bool HasReceive() const { return !posted_.empty(); }
  struct Posted {
    Instance instance;
    const std::byte* data = nullptr;
  };
  Posted ReceiveCompleted() { return posted_.pop(); }

 private:
  // Of registered memory: the handle of the rails' is RailKeys.
  std::uint32_t KeyOf(const Memory& memory) const {
    return (*static_cast<const RailKeys*>(memory.handle))[key_];
  }
  std::uint64_t NextSendId();
  Status PostResult(const char* what, int error) const;

  const std::unique_ptr<verbs::QueuePair> queue_pair_;
  const int peer_;
  const int rail_;  // of the connection
  const int key_;   // of the communicator: which of a Memory's keys
  const int max_sends_;
  const int max_receives_;
  const bool completes_every_send_;

  // Empty: a probe.
  Fifo<std::optional<Instance>> in_flight_;
  std::uint64_t messages_sent_ = 0;
  std::uint32_t posted_sends_ = 0;  // probes too
  std::uint32_t completed_ = 0;
  Fifo<Posted> posted_;

  // Lists in the making. The requests are made once, each linked to the next.
  int new_sends_ = 0;
  std::array<Instance, kBatch> send_instances_;
  std::array<ibv_send_wr, kBatch> sends_ = {};
  std::array<std::array<ibv_sge, kMostPieces>, kBatch> send_pieces_ = {};
  ibv_send_wr probe_ = {};
  int new_receives_ = 0;
  std::array<Posted, kBatch> new_posted_;
  std::array<ibv_recv_wr, kBatch> receives_ = {};
  std::array<ibv_sge, kBatch> receive_pieces_ = {};
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_RAILS_DATA_CHANNEL_H_
