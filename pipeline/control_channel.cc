#include "pipeline/control_channel.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "pipeline/work_id.h"

namespace ringpipe {

Status ControlChannel::Post(ibv_send_wr& request, bool signaled) {
  request.wr_id = WorkId{false, WorkId::kControl,
                         static_cast<std::uint16_t>(peer_), posted_}
                      .Pack();
  ++posted_;
  // One completion in so many says that the queue is empty up to there. A
  // request that fails has one in any case.
  if (signaled || posted_ - last_signaled_ >= kMaxSends / 4) {
    request.send_flags |= IBV_SEND_SIGNALED;
    last_signaled_ = posted_;
    ++signaled_;
  }
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(queue_pair_->get(), &request, &bad)) {
    return ErrnoStatus(
        StatusCode::kPeerLost,
        "posting a control message to rank " + std::to_string(peer_), error);
  }
  return Status::Ok();
}

Status ControlChannel::Send(const ControlMessage& message) {
  // Inline: the message is on the caller's stack.
  ibv_sge piece = {reinterpret_cast<std::uintptr_t>(&message), sizeof message,
                   0};
  ibv_send_wr request = {};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_INLINE;
  return Post(request, false);
}

Status ControlChannel::WriteCredit(std::uint64_t grants) {
  ibv_sge piece = {reinterpret_cast<std::uintptr_t>(&grants), sizeof grants, 0};
  ibv_send_wr request = {};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_INLINE;
  request.wr.rdma.remote_addr = remote_word_;
  request.wr.rdma.rkey = remote_word_rkey_;
  return Post(request, false);
}

Status ControlChannel::Probe() {
  ibv_send_wr request = {};
  request.opcode = IBV_WR_RDMA_WRITE;
  request.wr.rdma.remote_addr = remote_word_;
  request.wr.rdma.rkey = remote_word_rkey_;
  return Post(request, true);
}

void ControlChannel::SendCompleted(std::uint32_t number) {
  completed_ = number + 1;
  // Errors complete requests that did not ask for it.
  signaled_ = completed_ == last_signaled_ ? 0 : std::max(signaled_ - 1, 0);
}

Status ControlChannel::PostReceive(int buffer) {
  ibv_sge piece = {reinterpret_cast<std::uintptr_t>(&memory_.received[buffer]),
                   sizeof(ControlMessage), memory_.received_lkey};
  ibv_recv_wr request = {};
  request.wr_id =
      WorkId{true, WorkId::kControl, static_cast<std::uint16_t>(peer_),
             static_cast<std::uint32_t>(buffer)}
          .Pack();
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  if (const int error = ibv_post_recv(queue_pair_->get(), &request, &bad)) {
    return ErrnoStatus(StatusCode::kDeviceError,
                       "posting a receive for rank " + std::to_string(peer_),
                       error);
  }
  ++receives_posted_;
  return Status::Ok();
}

std::optional<ControlMessage> ControlChannel::Read(int buffer,
                                                   std::uint32_t bytes) const {
  if (bytes != sizeof(ControlMessage)) {
    return std::nullopt;
  }
  ControlMessage message;
  std::memcpy(&message, &memory_.received[buffer], sizeof message);
  switch (message.kind) {
    case ControlMessage::Kind::kDigest:
    case ControlMessage::Kind::kSleep:
    case ControlMessage::Kind::kWake:
      return message;
  }
  return std::nullopt;
}

}  // namespace ringpipe
