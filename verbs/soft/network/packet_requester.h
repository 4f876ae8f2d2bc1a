#ifndef RINGPIPE_VERBS_SOFT_PACKET_REQUESTER_H_
#define RINGPIPE_VERBS_SOFT_PACKET_REQUESTER_H_

#include <infiniband/verbs.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/deadline.h"
#include "verbs/soft/adversary.h"
#include "verbs/soft/layout.h"
#include "verbs/soft/network/packet_channel.h"
#include "verbs/soft/network/wire.h"
#include "verbs/soft/retries.h"
#include "verbs/soft/send_queue.h"

namespace ringpipe::verbs::soft {

class QueuePair;

// The requester's side of a connection to another host: the send queue's
// requests out as packets, answers in, completions. Requests are sent ahead of
// their acknowledgements, many at a time. Guarded by the queue pair's mutex.
//
//   completed()        next_                posted()
//       |  sent, waiting  |  still to be sent  |       request numbers
//
// A NAK and a new connection set next_ back.
class PacketRequester {
 public:
  PacketRequester(QueuePair* qp, SendQueue* queue, Retries* retries);

  // At RTS, by ibv_qp_attr: the first packet's number, and how many READs and
  // atomics may wait at once.
  void Set(std::uint32_t first_psn, std::uint32_t most_reads);

  void OnConnected();
  void OnDisconnected();

  // A packet of a request: the fragment [offset, offset + header.payload_bytes)
  // of request `number`.
  struct Packet {
    std::uint32_t number = 0;
    PacketHeader header;
  };
  // The next one to send, which must then be sent; nullopt: none now. `again`
  // is lowered to when there may be one without any other event.
  std::optional<Packet> NextPacket(Trigger trigger, Clock::time_point now,
                                   Clock::time_point* again);
  // The bytes of its payload from the `skip`th on, as up to kMaxSge ranges,
  // read where they lie. -1 if the memory is no longer registered.
  int Payload(const Packet& packet, std::uint64_t skip, iovec* ranges);
  // It has been given to the connection as a whole.
  void OnSent(const Packet& packet);

  // An answer. False if no responder would send that: close the connection.
  bool Receive(const PacketHeader& header, std::span<const std::byte> payload,
               Clock::time_point now);

  // What has gone without an answer for too long, or failed, ends; the queue
  // pair is in error then. Returns when to look again. `channel` is the
  // connection, `lost` whether it is the last one (Options::tcp_timeout).
  Clock::time_point Expire(Clock::time_point now, const PacketChannel* channel,
                           bool lost);
  // Whether the connection was there, and its host did not answer.
  bool found_silence() const { return found_silence_; }
  void Flush();

 private:
  bool unreliable() const;
  bool is_read(std::uint32_t number) const;
  std::uint32_t Psn(std::uint32_t number) const {
    return (first_psn_ + number) & kMaxPsn;
  }
  // The request that `psn` stands for: one that waits for its answer, or the
  // one after those; nullopt: neither.
  std::optional<std::uint32_t> NumberOf(std::uint32_t psn) const;
  bool MayBegin(Trigger trigger, Clock::time_point now,
                Clock::time_point* again);
  void FailLocally(ibv_wc_status status);
  bool CompleteUntil(std::uint32_t number);
  void CompleteOldest(Clock::time_point now);
  bool ReceiveAck(const PacketHeader& header, Clock::time_point now);
  bool ReceiveNak(const PacketHeader& header, Clock::time_point now);
  bool ReceiveData(const PacketHeader& header,
                   std::span<const std::byte> payload, Clock::time_point now);
  void GoBackTo(std::uint32_t number);
  void OnProgress(Clock::time_point now);
  Clock::time_point ExpireByTcp(Clock::time_point now,
                                const PacketChannel* channel, bool lost);
  Clock::time_point ExpireUnsent(Clock::time_point now);
  void Fail(ibv_wc_status status);

  QueuePair* const qp_;
  SendQueue& queue_;
  Retries& retries_;
  std::uint32_t first_psn_ = 0;
  std::uint32_t most_reads_ = 1;
  bool connected_ = false;
  bool ever_connected_ = false;

  std::uint32_t next_ = 0;         // the request to send from, and
  std::uint64_t next_offset_ = 0;  // where in it
  std::uint32_t sent_ = 0;         // requests ever begun
  bool begun_ = false;             // a packet is on its way out
  std::uint32_t reads_in_flight_ = 0;
  std::uint64_t read_offset_ = 0;  // what of the oldest READ has come
  // The responder said that of the oldest request so much was executed.
  std::uint64_t acknowledged_offset_ = 0;
  // Request next_ cannot be sent; it ends when those before it have.
  std::optional<ibv_wc_status> local_failure_;
  // After a NAK: when to send again.
  Clock::time_point resume_{};
  // Since when the oldest request has gone without an answer.
  std::optional<Clock::time_point> silent_since_;
  bool found_silence_ = false;
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_PACKET_REQUESTER_H_
