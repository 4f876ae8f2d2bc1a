#include "verbs/soft/network/packet_responder.h"

#include <algorithm>
#include <utility>

namespace ringpipe::verbs::soft {
namespace {

constexpr std::uint32_t Next(std::uint32_t psn) { return (psn + 1) & kMaxPsn; }

bool IsReadOrAtomic(const PacketHeader& header) {
  return header.wr_opcode() == IBV_WR_RDMA_READ || IsAtomic(header.wr_opcode());
}

bool SameMessage(const PacketHeader& left, const PacketHeader& right) {
  return left.opcode == right.opcode &&
         left.message_bytes == right.message_bytes &&
         left.remote_address == right.remote_address && left.rkey == right.rkey;
}

}  // namespace

PacketResponder::PacketResponder(const Options& options, Executor execute)
    : unreliable_(options.unreliable),
      execute_(std::move(execute)),
      expected_(options.first_psn) {}

void PacketResponder::OnConnected() {
  answers_.clear();
  reads_waiting_ = 0;
  // The requester begins again with what has not been acknowledged.
  offset_ = 0;
}

// --- Requests ----------------------------------------------------------------

bool PacketResponder::Receive(const PacketHeader& header,
                              std::span<const std::byte> payload,
                              std::uint32_t min_rnr_timer) {
  if (failed_) {
    return true;
  }
  if (unreliable_) {
    if (IsReadOrAtomic(header)) {
      return false;
    }
    if (header.offset == 0) {  // whatever became of the message before
      expected_ = header.psn;
      offset_ = 0;
    }
  }
  const std::uint32_t ahead = (header.psn - expected_) & kMaxPsn;
  if (ahead == 0) {
    return ReceiveExpected(header, payload, min_rnr_timer);
  }
  if (!unreliable_ && IsDuplicate(header.psn)) {
    return ReceiveDuplicate(header);
  }
  // After a NAK what was on its way; else a peer whose numbers do not fit,
  // which will learn that by hearing nothing.
  return true;
}

bool PacketResponder::IsDuplicate(std::uint32_t psn) const {
  const std::uint32_t behind = (expected_ - psn) & kMaxPsn;
  return behind > 0 && behind <= executed_;
}

bool PacketResponder::ReceiveExpected(const PacketHeader& header,
                                      std::span<const std::byte> payload,
                                      std::uint32_t min_rnr_timer) {
  if (header.offset != offset_) {
    if (header.offset != 0) {
      return true;  // the rest of what was refused
    }
    offset_ = 0;  // it begins again
  }
  if (offset_ != 0 && !SameMessage(header, message_)) {
    return false;
  }
  if (IsReadOrAtomic(header) && reads_waiting_ >= kMostReads) {
    return false;
  }
  message_ = header;
  ibv_wc_status status = IBV_WC_SUCCESS;
  Step step = Step::kDone;
  if (!Accept(header, payload, &status, &step)) {
    return false;
  }
  if (step != Step::kDone) {
    Refuse(header, step, status, min_rnr_timer);
    return answers_.size() <= kMostAnswers;
  }
  offset_ += header.payload_bytes;
  if (IsReadOrAtomic(header) || offset_ == header.message_bytes) {
    expected_ = Next(expected_);
    executed_ = std::min(executed_ + 1, kMaxPsn / 2);
    offset_ = 0;
  }
  Acknowledge(expected_, offset_);
  return answers_.size() <= kMostAnswers;
}

// Executes what the packet asks for; of a READ only the checks.
bool PacketResponder::Accept(const PacketHeader& header,
                             std::span<const std::byte> payload,
                             ibv_wc_status* status, Step* step) {
  if (IsAtomic(header.wr_opcode())) {
    *step = ExecuteAtomic(header, status);
    return true;
  }
  if (header.wr_opcode() == IBV_WR_RDMA_READ) {
    *step = ProbeRead(header, status);
    return *step != Step::kDone || Push(header);
  }
  const iovec local = {const_cast<std::byte*>(payload.data()), payload.size()};
  *step = Execute(header, {&local, payload.empty() ? 0u : 1u}, header.offset,
                  header.payload_bytes, status);
  return true;
}

// A READ that will fail must do so before the requests behind it are executed.
// The responder checks the whole message whatever the fragment.
Step PacketResponder::ProbeRead(const PacketHeader& header,
                                ibv_wc_status* status) {
  std::byte unused;
  const iovec local = {&unused, 1};
  const std::uint64_t bytes = std::min<std::uint64_t>(header.message_bytes, 1);
  return Execute(header, {&local, bytes}, 0, bytes, status);
}

Step PacketResponder::ExecuteAtomic(const PacketHeader& header,
                                    ibv_wc_status* status) {
  std::uint64_t value = 0;
  const iovec local = {&value, sizeof value};
  const Step step = Execute(header, {&local, 1}, 0, sizeof value, status);
  if (step == Step::kDone) {
    atomic_results_[next_atomic_result_] = AtomicResult{header.psn, value};
    next_atomic_result_ = (next_atomic_result_ + 1) % kMostReads;
    PacketHeader answer;
    answer.kind = PacketKind::kAtomicResponse;
    answer.psn = header.psn;
    answer.swap = value;
    Push(answer);
  }
  return step;
}

Step PacketResponder::Execute(const PacketHeader& header,
                              std::span<const iovec> local,
                              std::uint64_t offset, std::uint64_t bytes,
                              ibv_wc_status* status, bool accepted) {
  Operation operation;
  operation.accepted = accepted;
  operation.opcode = header.wr_opcode();
  operation.solicited = header.solicited;
  operation.immediate = header.immediate;
  operation.remote_address = header.remote_address;
  operation.rkey = header.rkey;
  operation.compare_add = header.compare_add;
  operation.swap = header.swap;
  operation.local = local;
  operation.offset = offset;
  operation.bytes = bytes;
  operation.message_bytes = header.message_bytes;
  return execute_(operation, status);
}

// The connection before this one broke, and the requester does not know how
// far it came.
bool PacketResponder::ReceiveDuplicate(const PacketHeader& header) {
  if (!IsReadOrAtomic(header)) {
    if (header.offset + header.payload_bytes == header.message_bytes) {
      Acknowledge(Next(header.psn), 0);
    }
    return answers_.size() <= kMostAnswers;
  }
  if (reads_waiting_ >= kMostReads) {
    return false;
  }
  if (header.wr_opcode() == IBV_WR_RDMA_READ) {
    if (!Push(header)) {
      return false;
    }
    Acknowledge(Next(header.psn), 0);
    return true;
  }
  // Not executed twice.
  for (const std::optional<AtomicResult>& result : atomic_results_) {
    if (result && result->psn == header.psn) {
      PacketHeader answer;
      answer.kind = PacketKind::kAtomicResponse;
      answer.psn = header.psn;
      answer.swap = result->value;
      Push(answer);
      Acknowledge(Next(header.psn), 0);
      return true;
    }
  }
  return false;
}

void PacketResponder::Refuse(const PacketHeader& header, Step step,
                             ibv_wc_status status,
                             std::uint32_t min_rnr_timer) {
  offset_ = 0;
  if (unreliable_) {
    // The rest of the message has an offset that does not fit any more.
    return;
  }
  if (step == Step::kFailed) {
    NakFailure(header.psn, status);
    return;
  }
  PacketHeader nak;
  nak.kind = PacketKind::kNak;
  nak.psn = header.psn;
  const bool no_receive = step == Step::kNoReceive;
  nak.opcode = static_cast<std::uint8_t>(no_receive ? NakReason::kNoReceive
                                                    : NakReason::kNotReady);
  nak.detail = no_receive ? min_rnr_timer % 32 : 0;
  Push(nak);
}

// --- Answers -----------------------------------------------------------------

// False if there are more READs and atomics than a requester may have.
bool PacketResponder::Push(const PacketHeader& answer) {
  const bool is_read = answer.kind == PacketKind::kRequest ||
                       answer.kind == PacketKind::kAtomicResponse;
  if (is_read && ++reads_waiting_ > kMostReads) {
    return false;
  }
  const bool replaces = answer.kind == PacketKind::kNak && !answers_.empty() &&
                        answers_.back().kind == PacketKind::kNak;
  if (replaces) {
    answers_.back() = answer;
  } else {
    answers_.push_back(answer);
  }
  return true;
}

void PacketResponder::Acknowledge(std::uint32_t psn, std::uint64_t offset) {
  if (unreliable_) {
    return;
  }
  if (answers_.empty() || answers_.back().kind != PacketKind::kAck) {
    answers_.emplace_back().kind = PacketKind::kAck;
  }
  answers_.back().psn = psn;
  answers_.back().offset = offset;
}

void PacketResponder::NakFailure(std::uint32_t psn, ibv_wc_status status) {
  failed_ = true;
  PacketHeader nak;
  nak.kind = PacketKind::kNak;
  nak.psn = psn;
  nak.opcode = static_cast<std::uint8_t>(NakReason::kFailed);
  nak.detail = static_cast<std::uint8_t>(status);
  Push(nak);
}

void PacketResponder::NextAnswer(PacketHeader* header,
                                 std::span<const std::byte>* payload) {
  PacketHeader& answer = answers_.front();
  *payload = {};
  if (answer.kind != PacketKind::kRequest) {
    *header = answer;
    reads_waiting_ -= answer.kind == PacketKind::kAtomicResponse ? 1 : 0;
    answers_.pop_front();
    return;
  }
  // A READ; its offset is how far the answer has come.
  const PacketHeader read = answer;
  const auto bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      kMaxPayloadBytes, read.message_bytes - read.offset));
  if (read_data_ == nullptr) {
    read_data_.reset(new std::byte[kMaxPayloadBytes]);  // not zeroed
  }
  const iovec local = {read_data_.get(), bytes};
  ibv_wc_status status = IBV_WC_SUCCESS;
  const Step step =
      Execute(read, {&local, bytes > 0 ? 1u : 0u}, read.offset, bytes, &status,
              /*accepted=*/true);
  if (step != Step::kDone) {
    // The memory went away, or the queue pair did.
    answers_.clear();
    reads_waiting_ = 0;
    NakFailure(read.psn, status != IBV_WC_SUCCESS ? status : IBV_WC_REM_OP_ERR);
    *header = answers_.front();
    answers_.pop_front();
    return;
  }
  *header = read;
  header->kind = PacketKind::kReadResponse;
  header->opcode = 0;
  header->payload_bytes = bytes;
  *payload = {read_data_.get(), bytes};
  answer.offset += bytes;
  if (answer.offset == answer.message_bytes) {
    --reads_waiting_;
    answers_.pop_front();
  }
}

}  // namespace ringpipe::verbs::soft
