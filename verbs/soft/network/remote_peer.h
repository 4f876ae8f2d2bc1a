#ifndef RINGPIPE_VERBS_SOFT_REMOTE_PEER_H_
#define RINGPIPE_VERBS_SOFT_REMOTE_PEER_H_

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/deadline.h"
#include "verbs/library.h"
#include "verbs/soft/adversary.h"
#include "verbs/soft/network/packet_channel.h"
#include "verbs/soft/network/packet_reader.h"
#include "verbs/soft/network/packet_requester.h"
#include "verbs/soft/network/packet_responder.h"
#include "verbs/soft/network/queue_pair_address.h"
#include "verbs/soft/network/wire.h"
#include "verbs/soft/responder.h"

namespace ringpipe::verbs::soft {

class Network;
class QueuePair;

// A packet that is on its way out, and how far it is.
struct OutgoingPacket {
  std::byte header[kPacketHeaderBytes];
  std::optional<PacketRequester::Packet> request;
  std::span<const std::byte> answer;  // payload, where it is no request
  std::uint64_t sent = 0;             // of header and payload
  std::uint64_t bytes = 0;
};

// The peer of a connected queue pair that is on another host: what Requester
// is for one on this host, and the responder too. It speaks packets over a
// channel, which comes and may go again: TCP itself repairs what can be
// repaired, and a new connection goes on where the old one was cut off; unless
// TCP is believed (Options::tcp_timeout): then the first channel by which the
// peer said anything is the last.
//
// Everything here is guarded by the queue pair's mutex. The queue pair owns it
// from RTR to reset; the network thread holds it weakly.
class RemotePeer {
 public:
  // `responder` executes on the queue pair itself; it checks keys by the
  // context's private table.
  RemotePeer(QueuePair* qp, SendQueue* queue, Retries* retries,
             const QueuePairAddress& own, const QueuePairAddress& peer,
             std::uint32_t receive_psn, Responder responder);
  RemotePeer(const RemotePeer&) = delete;
  RemotePeer& operator=(const RemotePeer&) = delete;

  const QueuePairAddress& own() const { return own_; }
  const QueuePairAddress& peer() const { return peer_; }
  bool connects() const { return own_ < peer_; }

  // At RTS: as PacketRequester::Set.
  void SetSend(std::uint32_t first_psn, std::uint32_t most_reads) {
    requester_.Set(first_psn, most_reads);
  }

  // As Requester::Progress.
  Clock::time_point Progress(Trigger trigger);
  // The connection ends; answers that are due still arrive. Call this while
  // the send queue exists.
  void Close();

  // Whether there should be a connection, and is none.
  bool wants_connection() const;

  // How the peer is lost, where TCP is believed.
  PeerLoss DescribeLoss(const Network& network) const;

  // The rest is for the network thread. After each, Progress is due.

  // From now on packets go through `channel`; an older one is closed.
  void OnConnected(std::shared_ptr<PacketChannel> channel);
  // `channel` is broken, by an errno, or the peer closed it (0).
  void OnDisconnected(const PacketChannel* channel, int error);
  // Why there is no connection yet.
  void OnConnectFailed(const std::string& why) { connect_failure_ = why; }
  // Deals with all whole packets in `reader`, answers included. False if they
  // are not a peer's: close the connection.
  bool Receive(PacketReader* reader);
  void OnWritable() { blocked_ = false; }

 private:
  void Pump(Trigger trigger, Clock::time_point now, Clock::time_point* again);
  bool Pick(Trigger trigger, Clock::time_point now, Clock::time_point* again);
  int Remaining(iovec* ranges);
  void Disconnect();
  bool lost() const;

  QueuePair* const qp_;
  const QueuePairAddress own_;
  const QueuePairAddress peer_;
  Responder responder_;
  PacketResponder packet_responder_;
  PacketRequester requester_;
  std::shared_ptr<PacketChannel> channel_;
  std::optional<OutgoingPacket> outgoing_;
  bool heard_ = false;  // anything that the peer said by any channel
  int end_ = 0;         // of the last channel: an errno, or 0
  std::string connect_failure_;
  bool blocked_ = false;      // until the channel takes more
  bool answer_next_ = false;  // answers and requests take turns
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_REMOTE_PEER_H_
