#include "pipeline/data_channel.h"

#include <string>
#include <utility>

namespace ringpipe {

DataChannel::DataChannel(std::unique_ptr<verbs::QueuePair> queue_pair, int peer,
                         int rail, int max_sends, int max_receives,
                         Completions completions)
    : queue_pair_(std::move(queue_pair)),
      peer_(peer),
      rail_(rail),
      max_sends_(max_sends),
      max_receives_(max_receives),
      completions_(completions) {
  in_flight_.Reset(max_sends);
  posted_.Reset(max_receives);
}

void DataChannel::AddSend(Instance instance, const void* data,
                          std::uint32_t bytes, std::uint32_t lkey) {
  const int index = new_sends_++;
  send_instances_[index] = instance;
  send_pieces_[index] = {reinterpret_cast<std::uintptr_t>(data), bytes, lkey};
  ibv_send_wr& request = sends_[index];
  request = {};
  request.sg_list = &send_pieces_[index];
  request.num_sge = bytes > 0 ? 1 : 0;
  request.opcode = IBV_WR_SEND;
  if (bytes > 0 &&
      bytes <= static_cast<std::uint32_t>(queue_pair_->max_inline_bytes())) {
    request.send_flags = IBV_SEND_INLINE;
  }
  if (index > 0) {
    sends_[index - 1].next = &request;
  }
}

Status DataChannel::PostSends() {
  const int count = std::exchange(new_sends_, 0);
  if (count == 0) {
    return Status::Ok();
  }
  for (int i = 0; i < count; ++i) {
    sends_[i].wr_id = NextSendId();
    if (completions_ == Completions::kEverySend || i == count - 1) {
      sends_[i].send_flags |= IBV_SEND_SIGNALED;
    }
  }
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(queue_pair_->get(), sends_.data(), &bad);
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
  ibv_send_wr request = {};
  request.wr_id = NextSendId();
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = remote_address;
  request.wr.rdma.rkey = rkey;
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(queue_pair_->get(), &request, &bad);
  if (error == 0) {
    in_flight_.push(std::nullopt);
  }
  return PostResult("a probe to", error);
}

void DataChannel::AddReceive(Instance instance, void* memory,
                             std::uint32_t bytes, std::uint32_t lkey) {
  const int index = new_receives_++;
  receive_instances_[index] = instance;
  receive_pieces_[index] = {reinterpret_cast<std::uintptr_t>(memory), bytes,
                            lkey};
  ibv_recv_wr& request = receives_[index];
  request = {};
  request.wr_id = WorkId{true, static_cast<std::uint8_t>(rail_),
                         static_cast<std::uint16_t>(peer_), 0}
                      .Pack();
  request.sg_list = &receive_pieces_[index];
  request.num_sge = bytes > 0 ? 1 : 0;
  if (index > 0) {
    receives_[index - 1].next = &request;
  }
}

Status DataChannel::PostReceives() {
  const int count = std::exchange(new_receives_, 0);
  if (count == 0) {
    return Status::Ok();
  }
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(queue_pair_->get(), receives_.data(), &bad);
  for (int i = 0; i < count && &receives_[i] != bad; ++i) {
    posted_.push(receive_instances_[i]);
  }
  return PostResult("receives for", error);
}

}  // namespace ringpipe
