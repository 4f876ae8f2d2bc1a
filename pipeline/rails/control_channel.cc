#include "pipeline/rails/control_channel.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string>
#include <utility>

#include "pipeline/rails/work_id.h"
#include "reduction/host_copy.h"

namespace ringpipe {

ControlChannel::ControlChannel(std::unique_ptr<verbs::QueuePair> queue_pair,
                               int peer, const ControlMemory& memory)
    : queue_pair_(std::move(queue_pair)), peer_(peer), memory_(memory) {
  message_pieces_[0] = {reinterpret_cast<std::uintptr_t>(&header_),
                        sizeof header_, 0};
  message_.sg_list = message_pieces_.data();
  message_.opcode = IBV_WR_SEND;
  buffer_piece_.lkey = memory.lkey;
  buffered_.sg_list = &buffer_piece_;
  buffered_.num_sge = 1;
  buffered_.opcode = IBV_WR_SEND;
  credits_piece_ = {reinterpret_cast<std::uintptr_t>(&credits_),
                    sizeof credits_, 0};
  credit_.sg_list = &credits_piece_;
  credit_.num_sge = 1;
  credit_.opcode = IBV_WR_RDMA_WRITE;
  probe_.opcode = IBV_WR_RDMA_WRITE;
  for (int i = 0; i < kControlReceives; ++i) {
    receive_pieces_[i] = {
        reinterpret_cast<std::uintptr_t>(memory.buffers[i].data()),
        kControlBytes, memory.lkey};
    receives_[i].sg_list = &receive_pieces_[i];
    receives_[i].num_sge = 1;
    receives_[i].wr_id =
        WorkId{true, WorkId::kControl, static_cast<std::uint16_t>(peer),
               static_cast<std::uint32_t>(i)}
            .Pack();
  }
}

void ControlChannel::set_remote_word(std::uint64_t address,
                                     std::uint32_t rkey) {
  for (ibv_send_wr* request : {&credit_, &probe_}) {
    request->wr.rdma.remote_addr = address;
    request->wr.rdma.rkey = rkey;
  }
}

Status ControlChannel::Post(ibv_send_wr& request, unsigned flags) {
  assert(request.next == nullptr);
  if (outstanding() >= kMaxSends) {
    return {StatusCode::kInternal,
            "rank " + std::to_string(peer_) +
                " asked for more answers than the connection can hold"};
  }
  request.wr_id = WorkId{false, WorkId::kControl,
                         static_cast<std::uint16_t>(peer_), posted_}
                      .Pack();
  request.send_flags = flags;
  ++posted_;
  // One completion in so many says that the queue is empty up to there. A
  // request that fails has one in any case.
  if (posted_ - last_signaled_ >= kMaxSends / 4) {
    request.send_flags |= IBV_SEND_SIGNALED;
  }
  if ((request.send_flags & IBV_SEND_SIGNALED) != 0) {
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

Status ControlChannel::Send(const ControlHeader& header,
                            const std::byte* payload,
                            std::uint32_t payload_bytes) {
  if (payload_bytes > kEagerBytes) {
    return {StatusCode::kInternal,
            "an eager message of " + std::to_string(payload_bytes) + " bytes"};
  }
  const std::size_t bytes = sizeof header + payload_bytes;
  if (static_cast<int>(bytes) <= queue_pair_->max_inline_bytes()) {
    header_ = header;
    message_pieces_[1] = {reinterpret_cast<std::uintptr_t>(payload),
                          payload_bytes, 0};
    message_.num_sge = payload_bytes > 0 ? 2 : 1;
    return Post(message_, IBV_SEND_INLINE);
  }
  const int index = std::exchange(
      next_eager_send_, (next_eager_send_ + 1) % ControlMemory::kEagerSends);
  std::byte* const buffer = memory_.buffers[kControlReceives + index].data();
  std::memcpy(buffer, &header, sizeof header);
  HostCopy(buffer + sizeof header, payload, payload_bytes);
  buffer_piece_.addr = reinterpret_cast<std::uintptr_t>(buffer);
  buffer_piece_.length = static_cast<std::uint32_t>(bytes);
  used_by_[index] = posted_;
  return Post(buffered_, IBV_SEND_SIGNALED);
}

Status ControlChannel::WriteCredit(std::uint64_t credits) {
  credits_ = credits;
  return Post(credit_, IBV_SEND_INLINE);
}

Status ControlChannel::Probe() {
  Status posted = Post(probe_, IBV_SEND_SIGNALED);
  probed_ = posted_;
  return posted;
}

Status ControlChannel::SignalLast() {
  return posted_ == last_signaled_ || !HasRoom() ? Status::Ok() : Probe();
}

bool ControlChannel::SendCompleted(std::uint32_t number) {
  completed_ = number + 1;
  for (std::optional<std::uint32_t>& user : used_by_) {
    if (user.has_value() && static_cast<std::int32_t>(number - *user) >= 0) {
      user.reset();
    }
  }
  // Errors complete requests that did not ask for it.
  signaled_ = completed_ == last_signaled_ ? 0 : std::max(signaled_ - 1, 0);
  return completed_ != probed_;
}

Status ControlChannel::PostReceive(int buffer) {
  ibv_recv_wr* bad = nullptr;
  if (const int error =
          ibv_post_recv(queue_pair_->get(), &receives_[buffer], &bad)) {
    return ErrnoStatus(StatusCode::kDeviceError,
                       "posting a receive for rank " + std::to_string(peer_),
                       error);
  }
  ++receives_posted_;
  return Status::Ok();
}

std::optional<ControlHeader> ControlChannel::Read(int buffer,
                                                  std::uint32_t bytes) const {
  if (bytes < sizeof(ControlHeader)) {
    return std::nullopt;
  }
  ControlHeader header;
  std::memcpy(&header, memory_.buffers[buffer].data(), sizeof header);
  if (header.communicator != header_.communicator) {
    return std::nullopt;
  }
  const bool known = header.kind >= ControlHeader::Kind::kCall &&
                     header.kind <= ControlHeader::Kind::kWake;
  const bool has_payload =
      header.kind == ControlHeader::Kind::kCall && header.has_payload != 0;
  return known && (has_payload || bytes == sizeof header)
             ? std::optional(header)
             : std::nullopt;
}

}  // namespace ringpipe
