#ifndef RINGPIPE_PIPELINE_PEER_CONNECTION_H_
#define RINGPIPE_PIPELINE_PEER_CONNECTION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/status.h"
#include "memory_pool/slot_pool.h"
#include "pipeline/flow.h"
#include "pipeline/message.h"
#include "verbs/queue_pair.h"

namespace ringpipe {

// What a work request was, packed into its 64-bit wr_id.
struct WorkId {
  enum class Kind : std::uint8_t { kReceive, kData, kControl };
  Kind kind = Kind::kControl;
  std::uint16_t peer = 0;
  std::uint32_t slot = 0;  // kReceive
  Instance instance;       // kData: lane below 2^16, step below 2^24

  std::uint64_t Pack() const;
  static WorkId Unpack(std::uint64_t wr_id);
};

// The queue pair to one peer with its flow control, both directions. One thread
// at a time, except Fail.
//
// Credits: grants() counts receives that were posted for the peer's data since
// the beginning, and is written into the peer's credit word. The peer sends
// while its count of sent messages is below that word. So the sender never
// meets a receiver that is not ready, and that word is all that a peer can
// write here.
class PeerConnection {
 public:
  // What the peer must know, exchanged at bootstrap. Plain data.
  struct Address {
    verbs::Endpoint endpoint;
    std::uint32_t credit_rkey = 0;
    std::uint64_t credit_address = 0;
  };
  static_assert(sizeof(Address) == 40, "no padding, which would be sent too");

  // The word that the peer writes; in registered memory, a cache line each.
  struct alignas(64) CreditWord {
    std::atomic<std::uint64_t> grants = 0;
  };

  PeerConnection(int peer, std::unique_ptr<verbs::QueuePair> queue_pair,
                 CreditWord* word, std::uint32_t word_rkey, int max_sends)
      : peer_(peer),
        queue_pair_(std::move(queue_pair)),
        word_(word),
        word_rkey_(word_rkey),
        max_sends_(max_sends) {}

  int peer() const { return peer_; }
  Address address() const;
  Status Connect(const Address& remote);
  Status Fail() { return queue_pair_->Fail(); }

  // --- Sending -------------------------------------------------------------
  // Room in the send queue: data leaves some to grants and probes, and these
  // leave some to what is bounded by itself: 2 digests, a sleep and a wake.
  bool HasRoom() const { return sends_outstanding_ + 4 < max_sends_; }
  bool HasDataRoom() const { return sends_outstanding_ + 8 < max_sends_; }
  // Messages that may be sent now. A word that the peer cannot have written in
  // good faith is kInternal.
  Result<std::uint64_t> Credit() const;
  // One data message of `bytes` at `data` (none for 0 bytes).
  Status SendData(Instance instance, const void* data, std::uint32_t bytes,
                  std::uint32_t lkey);
  Status SendDigest(const Digest& digest);
  // Asks the peer to wake this rank at its next grant. At most one is
  // outstanding; no effect until it was answered.
  Status SendSleep();
  // A write of no bytes: fails where the peer is gone.
  Status SendProbe();
  int sends_outstanding() const { return sends_outstanding_; }

  // --- Receiving -----------------------------------------------------------
  // `for_data`: counts as a grant; otherwise it is one of the control receives.
  Status PostReceive(const SlotPool& pool, int slot, bool for_data);
  // Tells the peer of receives posted since the last time.
  bool HasGrantsToTell() const { return grants_ != grants_told_; }
  Status TellGrants();
  Status HandleSleep(const SleepNotice& notice);
  void HandleWake() { asleep_ = false; }

  // --- Completions ---------------------------------------------------------
  void CountSendCompletion() { --sends_outstanding_; }
  void CountReceiveCompletion() { --receives_posted_; }
  int receives_posted() const { return receives_posted_; }

  // --- The running collective ----------------------------------------------
  // A digest of a later collective than the running one, kept until then.
  std::optional<Digest> early_digest;
  bool digest_verified = false;

 private:
  Status Post(ibv_send_wr* request);
  Status PostControl(MessageKind kind, const void* payload,
                     std::uint32_t bytes);

  const int peer_;
  const std::unique_ptr<verbs::QueuePair> queue_pair_;
  CreditWord* const word_;
  const std::uint32_t word_rkey_;
  const int max_sends_;
  std::uint64_t remote_word_ = 0;
  std::uint32_t remote_word_rkey_ = 0;

  std::uint64_t sent_ = 0;         // data messages
  std::uint64_t grants_ = 0;       // receives posted for the peer's data
  std::uint64_t grants_told_ = 0;  // the last value written to the peer
  bool asleep_ = false;            // a SLEEP of ours is not answered yet
  bool peer_asleep_ = false;       // one of the peer's waits for our next grant
  int sends_outstanding_ = 0;
  int receives_posted_ = 0;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_PEER_CONNECTION_H_
