#ifndef RINGPIPE_PIPELINE_DATA_CHANNEL_H_
#define RINGPIPE_PIPELINE_DATA_CHANNEL_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/status.h"
#include "pipeline/flow.h"
#include "pipeline/work_id.h"
#include "verbs/queue_pair.h"

namespace ringpipe {

// The queue pair to one peer on one rail, for data. Work requests are collected
// by Add... and posted as one list by Post. One thread at a time, except Fail.
class DataChannel {
 public:
  // Work requests in a list; the source of a send is held until the last of
  // its list has been sent.
  static constexpr int kBatch = 16;

  // Which sends ask for a completion, and so say that their source is free.
  enum class Completions {
    // The last of a list, for all before it.
    kLastOfList,
    // Every one. Linux's siw (software iWARP) needs it: where no completion is
    // asked for it hands TCP the pages themselves, which TCP may read again
    // after a later send's completion, up to the peer's acknowledgement
    // (siw_qp_tx.c, "Allow direct sending out of user buffer").
    kEverySend,
  };

  // `queue_pair` has room for `max_sends` and `max_receives`; neither is below
  // kBatch.
  DataChannel(std::unique_ptr<verbs::QueuePair> queue_pair, int peer, int rail,
              int max_sends, int max_receives, Completions completions);

  verbs::QueuePair& queue_pair() { return *queue_pair_; }
  const verbs::QueuePair& queue_pair() const { return *queue_pair_; }

  // --- Sending ---------------------------------------------------------------
  bool CanAddSend() const {
    return new_sends_ < kBatch && sends_outstanding() < max_sends_;
  }
  // `bytes` at `data`, which stay as they are until the send has completed.
  void AddSend(Instance instance, const void* data, std::uint32_t bytes,
               std::uint32_t lkey);
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
  // peer is gone (but see PeerConnection::Probe). Only while nothing else is
  // outstanding.
  Status Probe(std::uint64_t remote_address, std::uint32_t rkey);

  // --- Receiving -------------------------------------------------------------
  bool CanAddReceive() const {
    return new_receives_ < kBatch && receives_posted() < max_receives_;
  }
  void AddReceive(Instance instance, void* memory, std::uint32_t bytes,
                  std::uint32_t lkey);
  Status PostReceives();

  bool HasNewReceives() const { return new_receives_ > 0; }
  int receives_posted() const {
    return static_cast<int>(posted_.size()) + new_receives_;
  }
  // Messages arrive in the order in which receives were posted.
  bool HasReceive() const { return !posted_.empty(); }
  Instance ReceiveCompleted() { return posted_.pop(); }

 private:
  std::uint64_t NextSendId();
  Status PostResult(const char* what, int error) const;

  const std::unique_ptr<verbs::QueuePair> queue_pair_;
  const int peer_;
  const int rail_;
  const int max_sends_;
  const int max_receives_;
  const Completions completions_;

  // Empty: a probe.
  Fifo<std::optional<Instance>> in_flight_;
  std::uint64_t messages_sent_ = 0;
  std::uint32_t posted_sends_ = 0;  // probes too
  std::uint32_t completed_ = 0;
  Fifo<Instance> posted_;

  // Lists in the making.
  int new_sends_ = 0;
  std::array<Instance, kBatch> send_instances_;
  std::array<ibv_send_wr, kBatch> sends_ = {};
  std::array<ibv_sge, kBatch> send_pieces_ = {};
  int new_receives_ = 0;
  std::array<Instance, kBatch> receive_instances_;
  std::array<ibv_recv_wr, kBatch> receives_ = {};
  std::array<ibv_sge, kBatch> receive_pieces_ = {};
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_DATA_CHANNEL_H_
