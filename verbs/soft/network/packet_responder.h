#ifndef RINGPIPE_VERBS_SOFT_PACKET_RESPONDER_H_
#define RINGPIPE_VERBS_SOFT_PACKET_RESPONDER_H_

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "verbs/soft/layout.h"
#include "verbs/soft/network/wire.h"
#include "verbs/soft/operation.h"

namespace ringpipe::verbs::soft {

// The responder's side of a connection to another host: request packets in,
// answers out, in between the operations' execution. It outlives connections:
// what came of earlier requests is known when they come again.
//
// All that arrives may be wrong, on purpose too: nothing in a packet decides
// how much memory or time is spent here. Not thread-safe.
class PacketResponder {
 public:
  // Executes an operation on the queue pair, as Responder::Execute.
  using Executor = std::function<Step(const Operation&, ibv_wc_status*)>;

  struct Options {
    std::uint32_t first_psn = 0;
    bool unreliable = false;  // UC: no answers; what cannot be done is not done
  };

  PacketResponder(const Options& options, Executor execute);

  // A new connection: what the old one has not sent is of no use.
  void OnConnected();

  // A kRequest with its payload. False if no requester would send that: close
  // the connection. `min_rnr_timer` is what a NAK for want of a receive says.
  bool Receive(const PacketHeader& header, std::span<const std::byte> payload,
               std::uint32_t min_rnr_timer);

  bool has_answer() const { return !answers_.empty(); }
  // The next one has no payload, and executes nothing.
  bool has_small_answer() const {
    return has_answer() && answers_.front().kind != PacketKind::kRequest;
  }
  // The next answer to send, with its payload, valid until the next call. May
  // execute a fragment of a READ. Only if has_answer().
  void NextAnswer(PacketHeader* header, std::span<const std::byte>* payload);

 private:
  // A requester sends no more than max_rd_atomic of these at once, for which
  // the device's limit is this.
  static constexpr std::size_t kMostReads = kMaxRdAtomic;
  // Between two of them is at most one acknowledgement and one NAK.
  static constexpr std::size_t kMostAnswers = 3 * kMostReads + 3;

  struct AtomicResult {
    std::uint32_t psn = 0;
    std::uint64_t value = 0;
  };

  bool ReceiveExpected(const PacketHeader& header,
                       std::span<const std::byte> payload,
                       std::uint32_t min_rnr_timer);
  bool ReceiveDuplicate(const PacketHeader& header);
  bool Accept(const PacketHeader& header, std::span<const std::byte> payload,
              ibv_wc_status* status, Step* step);
  void Refuse(const PacketHeader& header, Step step, ibv_wc_status status,
              std::uint32_t min_rnr_timer);
  Step ExecuteAtomic(const PacketHeader& header, ibv_wc_status* status);
  Step ProbeRead(const PacketHeader& header, ibv_wc_status* status);
  bool IsDuplicate(std::uint32_t psn) const;
  // `accepted`: it was found good before, whatever came since.
  Step Execute(const PacketHeader& header, std::span<const iovec> local,
               std::uint64_t offset, std::uint64_t bytes, ibv_wc_status* status,
               bool accepted = false);
  bool Push(const PacketHeader& answer);
  void Acknowledge(std::uint32_t psn, std::uint64_t offset);
  void NakFailure(std::uint32_t psn, ibv_wc_status status);

  const bool unreliable_;
  const Executor execute_;
  // What has been executed: all before (expected_, offset_).
  std::uint32_t expected_;
  std::uint32_t executed_ = 0;  // messages, up to the range of a number
  std::uint64_t offset_ = 0;
  PacketHeader message_;  // the first packet of the message at offset_ > 0
  bool failed_ = false;   // nothing is executed any more
  std::deque<PacketHeader> answers_;
  std::size_t reads_waiting_ = 0;  // in answers_, atomics too
  std::array<std::optional<AtomicResult>, kMostReads> atomic_results_;
  std::size_t next_atomic_result_ = 0;
  std::unique_ptr<std::byte[]> read_data_;  // a fragment on its way out
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_PACKET_RESPONDER_H_
