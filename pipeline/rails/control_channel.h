#ifndef RINGPIPE_PIPELINE_RAILS_CONTROL_CHANNEL_H_
#define RINGPIPE_PIPELINE_RAILS_CONTROL_CHANNEL_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/status.h"
#include "pipeline/rails/message.h"
#include "verbs/queue_pair.h"

namespace ringpipe {

// What one connection's control queue pair needs of registered memory.
struct ControlMemory {
  // The only memory that a peer can write at will.
  struct alignas(64) CreditWord {
    std::atomic<std::uint64_t> credits = 0;
  };
  // What is received, and eager messages that are too long to be inline. Two of
  // these: the peer has had the one of the call before the last.
  static constexpr int kEagerSends = 2;
  static constexpr int kBuffers = kControlReceives + kEagerSends;
  using Buffer = std::array<std::byte, kControlBytes>;

  CreditWord* word = nullptr;
  std::uint32_t word_rkey = 0;
  Buffer* buffers = nullptr;  // kBuffers: those for receives first
  std::uint32_t lkey = 0;
};

// The queue pair to one peer for what is not bulk data: small messages and
// credit. No source is held once a function has returned. One thread at a time,
// except Fail.
class ControlChannel {
 public:
  // The most work requests that are outstanding. Credit and probes use half of
  // them; a call's message and SLEEP leave room for the answers to the peer's
  // SLEEP, which do not wait: a WRITE of credit and WAKE, of which the peer has
  // the ones before.
  static constexpr int kMaxSends = 64;
  static constexpr int kAnswers = 8;

  ControlChannel(std::unique_ptr<verbs::QueuePair> queue_pair, int peer,
                 const ControlMemory& memory);

  verbs::QueuePair& queue_pair() { return *queue_pair_; }
  const verbs::QueuePair& queue_pair() const { return *queue_pair_; }
  const ControlMemory& memory() const { return memory_; }

  // Where the peer's credit word is, once it is known.
  void set_remote_word(std::uint64_t address, std::uint32_t rkey);

  // Room for credit and probes.
  bool HasRoom() const { return outstanding() < kMaxSends / 2; }
  // Room for a call's message, of any length (until its completion a long one
  // holds a buffer), or SLEEP. Where there is none a completion is to come.
  bool CanSend() const {
    return outstanding() < kMaxSends - kAnswers &&
           !used_by_[next_eager_send_].has_value();
  }
  Status Send(const ControlHeader& header, const std::byte* payload = nullptr,
              std::uint32_t payload_bytes = 0);
  // Writes `credits` into the peer's credit word.
  Status WriteCredit(std::uint64_t credits);
  Status Probe();

  // Whether something is outstanding that will complete, or fail.
  bool awaits_completion() const { return signaled_ > 0; }
  // Work requests that are not known to have completed; after SignalLast the
  // last of them will be, as soon as there is room for a probe.
  int outstanding() const { return static_cast<int>(posted_ - completed_); }
  Status SignalLast();
  // Returns whether it says more than that the peer's device is alive.
  bool SendCompleted(std::uint32_t number);

  Status PostReceive(int buffer);
  void CountReceive() { --receives_posted_; }
  int receives_posted() const { return receives_posted_; }
  // The header of a message of `bytes` in a buffer whose receive has completed;
  // nullopt where it is none. The caller posts the buffer anew.
  std::optional<ControlHeader> Read(int buffer, std::uint32_t bytes) const;
  const std::byte* payload(int buffer) const {
    return memory_.buffers[buffer].data() + sizeof(ControlHeader);
  }

 private:
  Status Post(ibv_send_wr& request, unsigned flags);

  const std::unique_ptr<verbs::QueuePair> queue_pair_;
  const int peer_;
  const ControlMemory memory_;

  // Made once; of a request the wr_id and the flags change, of a piece the
  // length.
  ControlHeader header_;
  std::uint64_t credits_ = 0;
  std::array<ibv_sge, 2> message_pieces_ = {};  // header, payload
  ibv_sge buffer_piece_ = {};
  ibv_sge credits_piece_ = {};
  ibv_send_wr message_ = {}, buffered_ = {}, credit_ = {}, probe_ = {};
  std::array<ibv_sge, kControlReceives> receive_pieces_ = {};
  std::array<ibv_recv_wr, kControlReceives> receives_ = {};

  int next_eager_send_ = 0;
  // The request that holds each buffer.
  std::array<std::optional<std::uint32_t>, ControlMemory::kEagerSends> used_by_;

  std::uint32_t posted_ = 0;
  std::uint32_t completed_ = 0;
  std::uint32_t last_signaled_ = 0;  // number + 1
  int signaled_ = 0;
  std::uint32_t probed_ = 0;  // number + 1
  int receives_posted_ = 0;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_RAILS_CONTROL_CHANNEL_H_
