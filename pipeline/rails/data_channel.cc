#include "pipeline/rails/data_channel.h"

#include <cassert>
#include <string>
#include <utility>

namespace ringpipe {

DataChannel::DataChannel(std::unique_ptr<verbs::QueuePair> queue_pair, int peer,
                         int rail, int key, int max_sends, int max_receives,
                         bool completes_every_send)
    : queue_pair_(std::move(queue_pair)),
      peer_(peer),
      rail_(rail),
      key_(key),
      max_sends_(max_sends),
      max_receives_(max_receives),
      completes_every_send_(completes_every_send) {
  in_flight_.Reset(max_sends);
  posted_.Reset(max_receives);
  const std::uint64_t receive_id = WorkId{true, static_cast<std::uint8_t>(rail),
                                          static_cast<std::uint16_t>(peer), 0}
                                       .Pack();
  for (int i = 0; i < kBatch; ++i) {
    sends_[i].sg_list = send_pieces_[i].data();
    sends_[i].opcode = IBV_WR_SEND;
    receives_[i].sg_list = &receive_pieces_[i];
    receives_[i].wr_id = receive_id;
    if (i > 0) {
      sends_[i - 1].next = &sends_[i];
      receives_[i - 1].next = &receives_[i];
    }
  }
  probe_.opcode = IBV_WR_RDMA_WRITE;
  probe_.send_flags = IBV_SEND_SIGNALED;
}

void DataChannel::AddSend(Instance instance, Pieces source) {
  const int index = new_sends_++;
  send_instances_[index] = instance;
  ibv_send_wr& request = sends_[index];
  assert(request.opcode == IBV_WR_SEND &&
         request.sg_list == send_pieces_[index].data() &&
         static_cast<int>(source.size()) <= pieces());
  request.num_sge = 0;
  std::uint64_t bytes = 0;
  for (const Memory& piece : source) {
    if (piece.bytes > 0) {
      send_pieces_[index][request.num_sge++] = {
          reinterpret_cast<std::uintptr_t>(piece.data), piece.bytes,
          KeyOf(piece)};
      bytes += piece.bytes;
    }
  }
  const bool is_inline =
      bytes > 0 && static_cast<std::int64_t>(bytes) <=
                       std::int64_t{queue_pair_->max_inline_bytes()};
  request.send_flags = is_inline ? IBV_SEND_INLINE : 0;
}

Status DataChannel::PostSends() {
  const int count = std::exchange(new_sends_, 0);
  if (count == 0) {
    return Status::Ok();
  }
  ibv_send_wr& last = sends_[count - 1];
  for (int i = 0; i < count; ++i) {
    assert(i == 0 || sends_[i - 1].next == &sends_[i]);
    sends_[i].wr_id = NextSendId();
    if (completes_every_send_ || i == count - 1) {
      sends_[i].send_flags |= IBV_SEND_SIGNALED;
    }
  }
  ibv_send_wr* const next = std::exchange(last.next, nullptr);
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(queue_pair_->get(), sends_.data(), &bad);
  last.next = next;
  for (int i = 0; i < count && &sends_[i] != bad; ++i) {
    in_flight_.push(send_instances_[i]);
    ++messages_sent_;
  }
  return PostResult("sends to", error);
}

std::uint64_t DataChannel::NextSendId() {
  return WorkId{false, static_cast<std::uint8_t>(rail_),
                static_cast<std::uint16_t>(peer_), posted_sends_++}
      .Pack();
}

// A queue pair that has failed may refuse what is posted: the connection is
// lost, for a reason that somebody else knows.
Status DataChannel::PostResult(const char* what, int error) const {
  return error == 0 ? Status::Ok()
                    : ErrnoStatus(StatusCode::kPeerLost,
                                  "posting " + std::string(what) + " rank " +
                                      std::to_string(peer_),
                                  error);
}

Status DataChannel::Probe(std::uint64_t remote_address, std::uint32_t rkey) {
  probe_.wr_id = NextSendId();
  probe_.wr.rdma.remote_addr = remote_address;
  probe_.wr.rdma.rkey = rkey;
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(queue_pair_->get(), &probe_, &bad);
  if (error == 0) {
    in_flight_.push(std::nullopt);
  }
  return PostResult("a probe to", error);
}

void DataChannel::AddReceive(Instance instance, const Memory& target) {
  const int index = new_receives_++;
  new_posted_[index] = {instance, target.data};
  receive_pieces_[index] = {reinterpret_cast<std::uintptr_t>(target.data),
                            target.bytes, KeyOf(target)};
  assert(receives_[index].sg_list == &receive_pieces_[index]);
  receives_[index].num_sge = target.bytes > 0 ? 1 : 0;
}

Status DataChannel::PostReceives() {
  const int count = std::exchange(new_receives_, 0);
  if (count == 0) {
    return Status::Ok();
  }
  ibv_recv_wr& last = receives_[count - 1];
  ibv_recv_wr* const next = std::exchange(last.next, nullptr);
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(queue_pair_->get(), receives_.data(), &bad);
  last.next = next;
  for (int i = 0; i < count && &receives_[i] != bad; ++i) {
    posted_.push(new_posted_[i]);
  }
  return PostResult("receives for", error);
}

}  // namespace ringpipe
