#ifndef RINGPIPE_PIPELINE_CONTROL_CHANNEL_H_
#define RINGPIPE_PIPELINE_CONTROL_CHANNEL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/status.h"
#include "pipeline/message.h"
#include "verbs/queue_pair.h"

namespace ringpipe {

// What one connection's control queue pair needs of registered memory.
struct ControlMemory {
  // The only memory that a peer can write at will.
  struct alignas(64) CreditWord {
    std::atomic<std::uint64_t> grants = 0;
  };
  CreditWord* word = nullptr;
  std::uint32_t word_rkey = 0;
  ControlMessage* received = nullptr;  // kControlReceives of them
  std::uint32_t received_lkey = 0;
};

// The queue pair to one peer for what is not data: small messages and credit,
// all inline, none of which holds memory. One thread at a time, except Fail.
class ControlChannel {
 public:
  // The most work requests that are outstanding. Credit and probes use half of
  // them. The rest is for what has a bound of its own: 2 digests, a sleep, the
  // answer to one (credit and a wake), and the next ones of these where this
  // rank has not yet seen the completions of the former.
  static constexpr int kMaxSends = 64;

  ControlChannel(std::unique_ptr<verbs::QueuePair> queue_pair, int peer,
                 const ControlMemory& memory)
      : queue_pair_(std::move(queue_pair)), peer_(peer), memory_(memory) {}

  verbs::QueuePair& queue_pair() { return *queue_pair_; }
  const verbs::QueuePair& queue_pair() const { return *queue_pair_; }
  const ControlMemory& memory() const { return memory_; }

  // Where the peer's credit word is, once it is known.
  void set_remote_word(std::uint64_t address, std::uint32_t rkey) {
    remote_word_ = address;
    remote_word_rkey_ = rkey;
  }

  // Room for credit and probes.
  bool HasRoom() const { return outstanding() < kMaxSends / 2; }
  Status Send(const ControlMessage& message);
  // Writes `grants` into the peer's credit word.
  Status WriteCredit(std::uint64_t grants);
  Status Probe();

  // Whether something is outstanding that will complete, or fail.
  bool awaits_completion() const { return signaled_ > 0; }
  void SendCompleted(std::uint32_t number);

  Status PostReceive(int buffer);
  void CountReceive() { --receives_posted_; }
  int receives_posted() const { return receives_posted_; }
  // The message of `bytes` in a buffer whose receive has completed; nullopt
  // where it is none. The caller posts the buffer anew.
  std::optional<ControlMessage> Read(int buffer, std::uint32_t bytes) const;

 private:
  int outstanding() const { return static_cast<int>(posted_ - completed_); }
  Status Post(ibv_send_wr& request, bool signaled);

  const std::unique_ptr<verbs::QueuePair> queue_pair_;
  const int peer_;
  const ControlMemory memory_;
  std::uint64_t remote_word_ = 0;
  std::uint32_t remote_word_rkey_ = 0;

  std::uint32_t posted_ = 0;
  std::uint32_t completed_ = 0;
  std::uint32_t last_signaled_ = 0;  // number + 1
  int signaled_ = 0;
  int receives_posted_ = 0;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_CONTROL_CHANNEL_H_
