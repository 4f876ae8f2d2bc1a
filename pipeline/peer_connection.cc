#include "pipeline/peer_connection.h"

#include <arpa/inet.h>

#include <string>

namespace ringpipe {

namespace {

// More grants at once than any rank can have slots: a word that was
// overwritten.
constexpr std::uint64_t kMaxCredit = 1 << 20;

}  // namespace

std::uint64_t WorkId::Pack() const {
  const std::uint64_t low =
      kind == Kind::kReceive
          ? slot
          : static_cast<std::uint64_t>(instance.lane) << 24 | instance.step;
  return static_cast<std::uint64_t>(kind) << 56 |
         static_cast<std::uint64_t>(peer) << 40 | low;
}

WorkId WorkId::Unpack(std::uint64_t wr_id) {
  WorkId id;
  id.kind = static_cast<Kind>(wr_id >> 56);
  id.peer = static_cast<std::uint16_t>(wr_id >> 40);
  id.slot = static_cast<std::uint32_t>(wr_id);
  id.instance = {static_cast<std::uint32_t>(wr_id >> 24) & 0xffff,
                 static_cast<std::uint32_t>(wr_id) & 0xffffff};
  return id;
}

PeerConnection::Address PeerConnection::address() const {
  return {queue_pair_->endpoint(), word_rkey_,
          reinterpret_cast<std::uintptr_t>(word_)};
}

Status PeerConnection::Connect(const Address& remote) {
  remote_word_ = remote.credit_address;
  remote_word_rkey_ = remote.credit_rkey;
  return queue_pair_->Connect(remote.endpoint)
      .WithContext("connecting to rank " + std::to_string(peer_));
}

Result<std::uint64_t> PeerConnection::Credit() const {
  const std::uint64_t credit =
      word_->grants.load(std::memory_order_acquire) - sent_;
  if (credit > kMaxCredit) {
    return Status(StatusCode::kInternal,
                  "rank " + std::to_string(peer_) +
                      " granted an impossible number of messages: its memory "
                      "or this rank's was overwritten");
  }
  return credit;
}

Status PeerConnection::Post(ibv_send_wr* request) {
  request->send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(queue_pair_->get(), request, &bad)) {
    return ErrnoStatus(StatusCode::kDeviceError,
                       "posting a send to rank " + std::to_string(peer_),
                       error);
  }
  ++sends_outstanding_;
  return Status::Ok();
}

Status PeerConnection::SendData(Instance instance, const void* data,
                                std::uint32_t bytes, std::uint32_t lkey) {
  ibv_sge sge = {reinterpret_cast<std::uintptr_t>(data), bytes, lkey};
  ibv_send_wr request = {};
  WorkId id;
  id.kind = WorkId::Kind::kData;
  id.peer = static_cast<std::uint16_t>(peer_);
  id.instance = instance;
  request.wr_id = id.Pack();
  request.sg_list = &sge;
  request.num_sge = bytes > 0 ? 1 : 0;
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.imm_data = htonl(static_cast<std::uint32_t>(MessageKind::kData));
  ++sent_;
  return Post(&request);
}

Status PeerConnection::PostControl(MessageKind kind, const void* payload,
                                   std::uint32_t bytes) {
  // Inline: the payload is on the caller's stack.
  ibv_sge sge = {reinterpret_cast<std::uintptr_t>(payload), bytes, 0};
  ibv_send_wr request = {};
  WorkId id;
  id.peer = static_cast<std::uint16_t>(peer_);
  request.wr_id = id.Pack();
  request.sg_list = &sge;
  request.num_sge = bytes > 0 ? 1 : 0;
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.send_flags = bytes > 0 ? IBV_SEND_INLINE : 0;
  request.imm_data = htonl(static_cast<std::uint32_t>(kind));
  return Post(&request);
}

Status PeerConnection::SendDigest(const Digest& digest) {
  return PostControl(MessageKind::kDigest, &digest, sizeof digest);
}

Status PeerConnection::SendSleep() {
  if (asleep_) {
    return Status::Ok();
  }
  asleep_ = true;
  const SleepNotice notice = {word_->grants.load(std::memory_order_acquire)};
  return PostControl(MessageKind::kSleep, &notice, sizeof notice);
}

Status PeerConnection::SendProbe() {
  ibv_send_wr request = {};
  WorkId id;
  id.peer = static_cast<std::uint16_t>(peer_);
  request.wr_id = id.Pack();
  request.opcode = IBV_WR_RDMA_WRITE;
  request.wr.rdma.remote_addr = remote_word_;
  request.wr.rdma.rkey = remote_word_rkey_;
  return Post(&request);
}

Status PeerConnection::PostReceive(const SlotPool& pool, int slot,
                                   bool for_data) {
  ibv_sge sge = {reinterpret_cast<std::uintptr_t>(pool.data(slot)),
                 static_cast<std::uint32_t>(pool.slot_bytes()), pool.lkey()};
  ibv_recv_wr request = {};
  WorkId id;
  id.kind = WorkId::Kind::kReceive;
  id.peer = static_cast<std::uint16_t>(peer_);
  id.slot = slot;
  request.wr_id = id.Pack();
  request.sg_list = &sge;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  if (const int error = ibv_post_recv(queue_pair_->get(), &request, &bad)) {
    return ErrnoStatus(StatusCode::kDeviceError,
                       "posting a receive for rank " + std::to_string(peer_),
                       error);
  }
  ++receives_posted_;
  grants_ += for_data ? 1 : 0;
  return Status::Ok();
}

Status PeerConnection::TellGrants() {
  ibv_sge sge = {reinterpret_cast<std::uintptr_t>(&grants_), sizeof grants_, 0};
  ibv_send_wr request = {};
  WorkId id;
  id.peer = static_cast<std::uint16_t>(peer_);
  request.wr_id = id.Pack();
  request.sg_list = &sge;
  request.num_sge = 1;
  request.opcode =
      peer_asleep_ ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_INLINE;
  request.imm_data = htonl(static_cast<std::uint32_t>(MessageKind::kWake));
  request.wr.rdma.remote_addr = remote_word_;
  request.wr.rdma.rkey = remote_word_rkey_;
  grants_told_ = grants_;
  peer_asleep_ = false;
  return Post(&request);
}

Status PeerConnection::HandleSleep(const SleepNotice& notice) {
  peer_asleep_ = true;
  // A grant that crossed the SLEEP: the sender may not have seen it.
  return grants_told_ != notice.seen_grants ? TellGrants() : Status::Ok();
}

}  // namespace ringpipe
