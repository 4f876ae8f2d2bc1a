#include "verbs/soft/network/remote_peer.h"

#include <errno.h>
#include <string.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "verbs/soft/network/network.h"
#include "verbs/soft/queue_pair.h"

namespace ringpipe::verbs::soft {
namespace {

bool Receives(ibv_qp_state state) {
  return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD ||
         state == IBV_QPS_SQE;
}

}  // namespace

RemotePeer::RemotePeer(QueuePair* qp, SendQueue* queue, Retries* retries,
                       const QueuePairAddress& own,
                       const QueuePairAddress& peer, std::uint32_t receive_psn,
                       Responder responder)
    : qp_(qp),
      own_(own),
      peer_(peer),
      responder_(std::move(responder)),
      packet_responder_(
          {.first_psn = receive_psn, .unreliable = qp->type() == IBV_QPT_UC},
          [this](const Operation& operation, ibv_wc_status* status) {
            return responder_.Execute(operation, status);
          }),
      requester_(qp, queue, retries) {}

// --- The connection ----------------------------------------------------------

bool RemotePeer::lost() const {
  return heard_ && channel_ == nullptr &&
         qp_->options().tcp_timeout > Clock::duration::zero();
}

bool RemotePeer::wants_connection() const {
  return channel_ == nullptr && !lost() && Receives(qp_->current_state());
}

void RemotePeer::OnConnected(std::shared_ptr<PacketChannel> channel) {
  if (lost()) {
    channel->Finish({});
    return;
  }
  if (channel_ != nullptr) {
    Disconnect();
  }
  channel_ = std::move(channel);
  blocked_ = false;
  packet_responder_.OnConnected();
  requester_.OnConnected();
}

void RemotePeer::OnDisconnected(const PacketChannel* channel, int error) {
  if (channel_.get() == channel) {
    end_ = error;
    Disconnect();
  }
}

PeerLoss RemotePeer::DescribeLoss(const Network& network) const {
  if (qp_->options().tcp_timeout == Clock::duration::zero()) {
    return {};
  }
  const std::string there = network.Place(peer_);
  if (requester_.found_silence() || (lost() && end_ == ETIMEDOUT)) {
    return {PeerLoss::Kind::kSilent,
            "the TCP connection to " + there + " had no answer for " +
                network.TcpTimeoutText() +
                ": is that host up, and does the network let TCP through?"};
  }
  if (lost()) {
    return {
        end_ == 0 || end_ == ECONNRESET ? PeerLoss::Kind::kEnded
                                        : PeerLoss::Kind::kUnknown,
        "the TCP connection to " + there + " was " +
            (end_ == 0 ? std::string("closed by its other end")
                       : "cut (" + std::string(strerrordesc_np(end_)) + ")") +
            ": does its process run?"};
  }
  return {
      PeerLoss::Kind::kUnknown,
      (connects()
           ? "no TCP connection to " + there + " could be made" +
                 (connect_failure_.empty() ? "" : " (" + connect_failure_ + ")")
           : "no TCP connection from " + there + " came in at " +
                 network.Place(own_)) +
          " within RINGPIPE_JOIN_TIMEOUT_MS: let TCP at the ports " +
          network.PortsText() + " through all firewalls between the hosts"};
}

void RemotePeer::Disconnect() {
  blocked_ = false;
  outgoing_.reset();
  std::exchange(channel_, nullptr)->Finish({});
  requester_.OnDisconnected();
}

void RemotePeer::Close() {
  if (channel_ == nullptr) {
    return;
  }
  // A NAK or an acknowledgement that waits behind a full socket is owed to the
  // peer. So is the rest of the packet before it, or they would be part of it.
  std::vector<std::byte> rest;
  bool whole = true;
  const auto append = [this, &rest, &whole] {
    iovec ranges[kMaxSge + 1];
    const int count = Remaining(ranges);
    whole = count >= 0;
    for (int i = 0; i < count; ++i) {
      const auto* from = static_cast<const std::byte*>(ranges[i].iov_base);
      rest.insert(rest.end(), from, from + ranges[i].iov_len);
    }
  };
  if (outgoing_) {
    append();
  }
  while (whole && packet_responder_.has_small_answer()) {
    PacketHeader header;
    OutgoingPacket& outgoing = outgoing_.emplace();
    packet_responder_.NextAnswer(&header, &outgoing.answer);
    EncodePacketHeader(header, outgoing.header);
    outgoing.bytes = kPacketHeaderBytes;
    append();
  }
  outgoing_.reset();
  std::exchange(channel_, nullptr)
      ->Finish(whole ? std::move(rest) : std::vector<std::byte>());
}

// --- Packets in --------------------------------------------------------------

bool RemotePeer::Receive(PacketReader* reader) {
  const Clock::time_point now = Clock::now();
  while (channel_ != nullptr) {
    PacketHeader header;
    std::span<const std::byte> payload;
    switch (reader->Next(&header, &payload)) {
      case PacketReader::Outcome::kMore:
        return true;
      case PacketReader::Outcome::kGarbage:
        return false;
      case PacketReader::Outcome::kPacket:
        heard_ = true;
        break;
    }
    const bool sane = header.kind == PacketKind::kRequest
                          ? packet_responder_.Receive(
                                header, payload, responder_.min_rnr_timer())
                          : requester_.Receive(header, payload, now);
    if (!sane) {
      return false;
    }
  }
  return true;
}

// --- Packets out -------------------------------------------------------------

Clock::time_point RemotePeer::Progress(Trigger trigger) {
  Clock::time_point again = Clock::time_point::max();
  const Clock::time_point now = Clock::now();
  if (Receives(qp_->current_state())) {
    Pump(trigger, now, &again);
    again = std::min(again, requester_.Expire(now, channel_.get(), lost()));
  }
  const ibv_qp_state state = qp_->current_state();
  if (state == IBV_QPS_ERR || state == IBV_QPS_SQE) {
    requester_.Flush();
  }
  if (!Receives(state)) {
    Close();
    return Clock::time_point::max();
  }
  return again;
}

void RemotePeer::Pump(Trigger trigger, Clock::time_point now,
                      Clock::time_point* again) {
  while (!blocked_) {
    if (!outgoing_ && !Pick(trigger, now, again)) {
      return;
    }
    iovec ranges[kMaxSge + 1];
    const int count = Remaining(ranges);
    // Memory that was deregistered under a packet which has begun: there is no
    // way to take that back but to cut the connection. The requester then
    // finds what is wrong with the request.
    const ssize_t sent = count < 0 ? -1 : channel_->Send(ranges, count);
    if (sent < 0) {
      end_ = EFAULT;
      Disconnect();
      return;
    }
    outgoing_->sent += static_cast<std::uint64_t>(sent);
    if (outgoing_->sent < outgoing_->bytes) {
      blocked_ = true;
      channel_->NotifyWhenWritable();
      return;
    }
    const std::optional<PacketRequester::Packet> request = outgoing_->request;
    outgoing_.reset();
    if (request) {
      requester_.OnSent(*request);
    }
  }
}

// Begins the next packet, if there is one.
bool RemotePeer::Pick(Trigger trigger, Clock::time_point now,
                      Clock::time_point* again) {
  const bool has_answer = channel_ != nullptr && packet_responder_.has_answer();
  answer_next_ = !answer_next_;
  std::optional<PacketRequester::Packet> request;
  if (!has_answer || !answer_next_) {
    request = requester_.NextPacket(trigger, now, again);
  }
  if (channel_ == nullptr || (!request && !has_answer)) {
    return false;
  }
  OutgoingPacket& outgoing = outgoing_.emplace();
  PacketHeader header;
  if (request) {
    header = request->header;
    outgoing.request = request;
  } else {
    packet_responder_.NextAnswer(&header, &outgoing.answer);
    header.payload_bytes = static_cast<std::uint32_t>(outgoing.answer.size());
  }
  EncodePacketHeader(header, outgoing.header);
  outgoing.bytes = kPacketHeaderBytes + header.payload_bytes;
  return true;
}

// What of the packet has not been sent; -1 if it is no longer there.
int RemotePeer::Remaining(iovec* ranges) {
  int count = 0;
  std::uint64_t skip = outgoing_->sent;
  if (skip < kPacketHeaderBytes) {
    ranges[count++] = {outgoing_->header + skip, kPacketHeaderBytes - skip};
    skip = 0;
  } else {
    skip -= kPacketHeaderBytes;
  }
  if (outgoing_->request) {
    const int payload =
        requester_.Payload(*outgoing_->request, skip, ranges + count);
    return payload < 0 ? -1 : count + payload;
  }
  const std::span<const std::byte> left = outgoing_->answer.subspan(skip);
  if (!left.empty()) {
    ranges[count++] = {const_cast<std::byte*>(left.data()), left.size()};
  }
  return count;
}

}  // namespace ringpipe::verbs::soft
