#include "verbs/soft/network/packet_requester.h"

#include <algorithm>

#include "verbs/soft/queue_pair.h"
#include "verbs/soft/remote_memory.h"

namespace ringpipe::verbs::soft {
namespace {

using std::chrono::milliseconds;

// Requests ahead of their acknowledgements. Their bytes are bounded by what
// the connection takes; this bounds what is sent in vain before an RNR NAK.
constexpr std::uint32_t kMostInFlight = 256;
constexpr milliseconds kNotReadyRetry{2};
// UC has no retries, and drops what it cannot send. But a connection is no
// part of UC: on hardware the first message arrives.
constexpr milliseconds kPatienceWithoutConnection{1000};
constexpr milliseconds kSilenceRecheck{100};

bool ReadsOrUpdates(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_READ || IsAtomic(opcode);
}

}  // namespace

PacketRequester::PacketRequester(QueuePair* qp, SendQueue* queue,
                                 Retries* retries)
    : qp_(qp), queue_(*queue), retries_(*retries) {}

void PacketRequester::Set(std::uint32_t first_psn, std::uint32_t most_reads) {
  first_psn_ = first_psn;
  most_reads_ = std::max(most_reads, 1u);
}

bool PacketRequester::unreliable() const { return qp_->type() == IBV_QPT_UC; }

bool PacketRequester::is_read(std::uint32_t number) const {
  return ReadsOrUpdates(queue_.at(number).opcode);
}

void PacketRequester::OnConnected() {
  if (!ever_connected_) {
    ever_connected_ = true;
    silent_since_.reset();  // to connect is not the wire's time
  }
  connected_ = true;
  begun_ = false;
  GoBackTo(queue_.completed());
  resume_ = {};
}

void PacketRequester::OnDisconnected() {
  connected_ = false;
  begun_ = false;
  GoBackTo(queue_.completed());
}

void PacketRequester::GoBackTo(std::uint32_t number) {
  next_ = number;
  next_offset_ = 0;
  read_offset_ = 0;
  acknowledged_offset_ = 0;
  local_failure_.reset();
  reads_in_flight_ = 0;
  for (std::uint32_t i = queue_.completed(); i != next_; ++i) {
    reads_in_flight_ += is_read(i) ? 1 : 0;
  }
}

// --- Requests out ------------------------------------------------------------

bool PacketRequester::MayBegin(Trigger trigger, Clock::time_point now,
                               Clock::time_point* again) {
  if (next_ == queue_.posted() || local_failure_ ||
      next_ - queue_.completed() >= kMostInFlight ||
      qp_->current_state() != IBV_QPS_RTS) {
    return false;
  }
  Clock::time_point until;
  SendRequest& request = queue_.at(next_);
  if (qp_->adversary().Holds(request, trigger, &until)) {
    *again = std::min(*again, until);
    return false;
  }
  if (!silent_since_) {
    silent_since_ = now;
  }
  if (!connected_) {
    return false;
  }
  if (now < resume_) {
    *again = std::min(*again, resume_);
    return false;
  }
  const bool fenced =
      (request.flags & IBV_SEND_FENCE) != 0 && reads_in_flight_ > 0;
  return !fenced && !(is_read(next_) && reads_in_flight_ >= most_reads_);
}

std::optional<PacketRequester::Packet> PacketRequester::NextPacket(
    Trigger trigger, Clock::time_point now, Clock::time_point* again) {
  if (next_offset_ == 0 && !MayBegin(trigger, now, again)) {
    return std::nullopt;
  }
  LocalMemory memory;
  if (const ibv_wc_status status = queue_.CheckedGather(next_, &memory);
      status != IBV_WC_SUCCESS) {
    FailLocally(status);
    return std::nullopt;
  }
  const Operation operation = queue_.MakeOperation(next_, memory);
  Packet packet;
  packet.number = next_;
  PacketHeader& header = packet.header;
  header.kind = PacketKind::kRequest;
  header.solicited = operation.solicited;
  header.opcode = static_cast<std::uint8_t>(operation.opcode);
  header.psn = Psn(next_);
  if (!IsSend(operation.opcode)) {
    header.rkey = operation.rkey;
    header.remote_address = operation.remote_address;
  }
  header.offset = next_offset_;
  header.message_bytes = memory.bytes;
  if (IsAtomic(operation.opcode)) {
    header.compare_add = operation.compare_add;
    header.swap = operation.swap;
  }
  if (HasImmediate(operation.opcode)) {
    header.immediate = operation.immediate;
  }
  if (header.remote_address > UINT64_MAX - header.message_bytes) {
    FailLocally(IBV_WC_REM_ACCESS_ERR);  // as the responder would say
    return std::nullopt;
  }
  if (!is_read(next_)) {
    header.payload_bytes = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(kMaxPayloadBytes, memory.bytes - next_offset_));
  }
  begun_ = true;
  return packet;
}

void PacketRequester::FailLocally(ibv_wc_status status) {
  local_failure_ = status;
  next_offset_ = 0;
}

int PacketRequester::Payload(const Packet& packet, std::uint64_t skip,
                             iovec* ranges) {
  const std::uint64_t bytes = packet.header.payload_bytes - skip;
  if (bytes == 0) {
    return 0;
  }
  // A responder that acknowledges what it has not got could have ended the
  // request meanwhile.
  LocalMemory memory;
  if (packet.number - queue_.completed() >=
          queue_.posted() - queue_.completed() ||
      !queue_.Gather(packet.number, &memory) ||
      memory.bytes != packet.header.message_bytes) {
    return -1;
  }
  RangeCursor cursor(memory.span());
  cursor.Skip(packet.header.offset + skip);
  return cursor.Slice(bytes, ranges);
}

void PacketRequester::OnSent(const Packet& packet) {
  begun_ = false;
  // A NAK may have set next_ back while the packet was on its way out.
  if (packet.number != next_ || packet.header.offset != next_offset_) {
    return;
  }
  if (static_cast<std::int32_t>(next_ + 1 - sent_) > 0) {
    sent_ = next_ + 1;
  }
  next_offset_ += packet.header.payload_bytes;
  if (!is_read(next_) && next_offset_ < packet.header.message_bytes) {
    return;
  }
  reads_in_flight_ += is_read(next_) ? 1 : 0;
  next_offset_ = 0;
  ++next_;
  if (unreliable()) {
    silent_since_.reset();
    queue_.Complete(IBV_WC_SUCCESS);
  }
}

// --- Answers in --------------------------------------------------------------

std::optional<std::uint32_t> PacketRequester::NumberOf(
    std::uint32_t psn) const {
  const std::uint32_t ahead = (psn - Psn(queue_.completed())) & kMaxPsn;
  // A message of which fragments are still to be sent cannot have arrived.
  const std::uint32_t last =
      next_offset_ > 0 && next_ + 1 == sent_ ? next_ : sent_;
  if (ahead > last - queue_.completed()) {
    return std::nullopt;
  }
  return queue_.completed() + ahead;
}

bool PacketRequester::Receive(const PacketHeader& header,
                              std::span<const std::byte> payload,
                              Clock::time_point now) {
  if (unreliable()) {
    return false;
  }
  if (qp_->current_state() != IBV_QPS_RTS &&
      qp_->current_state() != IBV_QPS_SQD) {
    return true;  // too late
  }
  switch (header.kind) {
    case PacketKind::kAck:
      return ReceiveAck(header, now);
    case PacketKind::kNak:
      return ReceiveNak(header, now);
    case PacketKind::kReadResponse:
    case PacketKind::kAtomicResponse:
      return ReceiveData(header, payload, now);
    case PacketKind::kRequest:
      break;
  }
  return false;
}

void PacketRequester::OnProgress(Clock::time_point now) {
  retries_.Clear();
  silent_since_.reset();
  if (begun_ || next_ != queue_.completed() || next_offset_ > 0) {
    silent_since_ = now;
  }
}

void PacketRequester::CompleteOldest(Clock::time_point now) {
  reads_in_flight_ -= is_read(queue_.completed()) ? 1 : 0;
  const bool was_next = next_ == queue_.completed();
  acknowledged_offset_ = 0;
  queue_.Complete(IBV_WC_SUCCESS);
  if (was_next) {  // an answer to what an earlier connection carried
    next_ = queue_.completed();
    next_offset_ = 0;
  }
  OnProgress(now);
}

// False where a READ or an atomic is among them: its answer must come first.
bool PacketRequester::CompleteUntil(std::uint32_t number) {
  const Clock::time_point now = Clock::now();
  while (queue_.completed() != number) {
    if (is_read(queue_.completed())) {
      return false;
    }
    CompleteOldest(now);
  }
  return true;
}

bool PacketRequester::ReceiveAck(const PacketHeader& header,
                                 Clock::time_point now) {
  const std::optional<std::uint32_t> number = NumberOf(header.psn);
  if (!number || !CompleteUntil(*number)) {
    return false;
  }
  if (header.offset > acknowledged_offset_) {
    acknowledged_offset_ = header.offset;
    OnProgress(now);
  }
  return true;
}

bool PacketRequester::ReceiveNak(const PacketHeader& header,
                                 Clock::time_point now) {
  const std::optional<std::uint32_t> number = NumberOf(header.psn);
  if (!number || *number == sent_ || !CompleteUntil(*number)) {
    return false;
  }
  ibv_wc_status status = static_cast<ibv_wc_status>(header.detail);
  switch (header.reason()) {
    case NakReason::kFailed:
      Fail(status);
      return true;
    case NakReason::kNotReady:
      GoBackTo(*number);
      resume_ = now + kNotReadyRetry;
      return true;
    case NakReason::kNoReceive:
      break;
  }
  GoBackTo(*number);
  if (retries_.Exhausted(Step::kNoReceive, header.detail, now, &status,
                         &resume_)) {
    Fail(status);
    return true;
  }
  silent_since_ = resume_;  // it was an answer
  return true;
}

bool PacketRequester::ReceiveData(const PacketHeader& header,
                                  std::span<const std::byte> payload,
                                  Clock::time_point now) {
  const std::optional<std::uint32_t> number = NumberOf(header.psn);
  if (!number || *number - queue_.completed() >= next_ - queue_.completed() ||
      !CompleteUntil(*number)) {
    return false;
  }
  LocalMemory memory;
  const bool registered = queue_.Gather(*number, &memory);
  const ibv_wr_opcode opcode = queue_.at(*number).opcode;
  if (header.kind == PacketKind::kAtomicResponse) {
    if (!IsAtomic(opcode)) {
      return false;
    }
    payload = std::as_bytes(std::span(&header.swap, 1));
  } else if (opcode != IBV_WR_RDMA_READ || header.offset != read_offset_) {
    return false;
  }
  if (!registered) {
    Fail(IBV_WC_LOC_PROT_ERR);
    return true;
  }
  if (payload.size() > memory.bytes - std::min(memory.bytes, read_offset_) ||
      (opcode == IBV_WR_RDMA_READ && header.message_bytes != memory.bytes)) {
    return false;
  }
  RangeCursor cursor(memory.span());
  cursor.Skip(read_offset_);
  iovec ranges[kMaxSge];
  const int count = payload.empty() ? 0 : cursor.Slice(payload.size(), ranges);
  const std::byte* from = payload.data();
  for (int i = 0; i < count; ++i) {
    CopyBytes(static_cast<std::byte*>(ranges[i].iov_base), from,
              ranges[i].iov_len);
    from += ranges[i].iov_len;
  }
  read_offset_ += payload.size();
  OnProgress(now);
  if (read_offset_ == memory.bytes) {
    read_offset_ = 0;
    CompleteOldest(now);
  }
  return true;
}

// --- Ends --------------------------------------------------------------------

void PacketRequester::Fail(ibv_wc_status status) {
  // First the state, so that who sees the completion sees the error state.
  qp_->EnterSendErrorState();
  queue_.Complete(status);
  Flush();
}

void PacketRequester::Flush() {
  while (!queue_.empty()) {
    queue_.Complete(IBV_WC_WR_FLUSH_ERR);
  }
  next_ = queue_.completed();
  next_offset_ = 0;
  reads_in_flight_ = 0;
  silent_since_.reset();
  local_failure_.reset();
}

Clock::time_point PacketRequester::Expire(Clock::time_point now,
                                          const PacketChannel* channel,
                                          bool lost) {
  if (local_failure_ && next_ == queue_.completed()) {
    Fail(*local_failure_);
    return Clock::time_point::max();
  }
  if (!silent_since_) {
    return Clock::time_point::max();
  }
  if (unreliable()) {
    return ExpireUnsent(now);
  }
  if (qp_->options().tcp_timeout > Clock::duration::zero()) {
    return ExpireByTcp(now, channel, lost);
  }
  if (retries_.transport_timeout() == Clock::duration::zero()) {
    return Clock::time_point::max();
  }
  const Clock::duration patience =
      ever_connected_ ? retries_.transport_timeout()
                      : std::max<Clock::duration>(retries_.transport_timeout(),
                                                  kPatienceWithoutConnection);
  const Clock::time_point expiry = *silent_since_ + patience;
  if (now < expiry) {
    return expiry;
  }
  Fail(IBV_WC_RETRY_EXC_ERR);
  return Clock::time_point::max();
}

// Of UC.
Clock::time_point PacketRequester::ExpireUnsent(Clock::time_point now) {
  const Clock::time_point expiry = *silent_since_ + kPatienceWithoutConnection;
  if (connected_ || now < expiry) {
    return connected_ ? Clock::time_point::max() : expiry;
  }
  silent_since_.reset();
  ++next_;
  queue_.Complete(IBV_WC_SUCCESS);
  return now;
}

// TCP repeats what the network loses, and its acknowledgements come from a host
// whose process is slow or stopped.
Clock::time_point PacketRequester::ExpireByTcp(Clock::time_point now,
                                               const PacketChannel* channel,
                                               bool lost) {
  const Options& options = qp_->options();
  Clock::time_point expiry = options.connect_by;
  if (channel != nullptr) {
    expiry = *silent_since_ + options.tcp_timeout;
    if (now >= expiry) {
      const Clock::duration silence = channel->UnacknowledgedFor();
      found_silence_ = silence >= options.tcp_timeout;
      expiry = now + std::max<Clock::duration>(options.tcp_timeout - silence,
                                               kSilenceRecheck);
    }
  }
  if (!lost && !found_silence_ && now < expiry) {
    return expiry;
  }
  Fail(IBV_WC_RETRY_EXC_ERR);
  return Clock::time_point::max();
}

}  // namespace ringpipe::verbs::soft
