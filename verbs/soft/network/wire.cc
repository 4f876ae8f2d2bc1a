#include "verbs/soft/network/wire.h"

namespace ringpipe::verbs::soft {
namespace {

constexpr std::uint8_t kMagic = 0xb5;
constexpr std::uint8_t kVersion = 1;
constexpr std::uint8_t kSolicitedFlag = 1;
constexpr std::uint8_t kImmediateFlag = 2;

template <typename T>
void Put(std::byte* out, T value) {
  for (std::size_t i = 0; i < sizeof value; ++i) {
    out[i] = static_cast<std::byte>(value >> 8 * i);
  }
}

template <typename T>
T Get(const std::byte* in) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof value; ++i) {
    value |= static_cast<T>(std::to_integer<T>(in[i]) << 8 * i);
  }
  return value;
}

// Before it is taken for one: other numbers are no values of ibv_wr_opcode.
bool IsOpcode(std::uint8_t opcode) {
  for (const ibv_wr_opcode known :
       {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
        IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
        IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    if (opcode == known) {
      return true;
    }
  }
  return false;
}

bool IsRequest(const PacketHeader& header, bool immediate) {
  if (!IsOpcode(header.opcode)) {
    return false;
  }
  const ibv_wr_opcode opcode = header.wr_opcode();
  if (header.message_bytes > kMaxMessageBytes ||
      header.offset > header.message_bytes ||
      header.payload_bytes > header.message_bytes - header.offset ||
      header.remote_address > UINT64_MAX - header.message_bytes ||
      immediate != HasImmediate(opcode)) {
    return false;
  }
  if (IsSend(opcode) || IsWrite(opcode)) {
    // No fragment is empty, or a message could have any number of them.
    return header.payload_bytes > 0 || header.message_bytes == 0;
  }
  if (header.payload_bytes != 0 || header.offset != 0) {
    return false;
  }
  return opcode == IBV_WR_RDMA_READ ||
         (IsAtomic(opcode) && header.message_bytes == 8);
}

bool IsNak(const PacketHeader& header) {
  switch (header.reason()) {
    case NakReason::kNoReceive:
      return header.detail < 32;
    case NakReason::kNotReady:
      return true;
    case NakReason::kFailed:
      return header.detail == IBV_WC_REM_ACCESS_ERR ||
             header.detail == IBV_WC_REM_INV_REQ_ERR ||
             header.detail == IBV_WC_REM_OP_ERR;
  }
  return false;
}

bool IsReadResponse(const PacketHeader& header) {
  return header.message_bytes <= kMaxMessageBytes &&
         header.offset <= header.message_bytes &&
         header.payload_bytes <= header.message_bytes - header.offset &&
         (header.payload_bytes > 0 || header.message_bytes == 0);
}

}  // namespace

void EncodePacketHeader(const PacketHeader& header,
                        std::span<std::byte, kPacketHeaderBytes> out) {
  std::byte* const at = out.data();
  const bool immediate =
      header.kind == PacketKind::kRequest && HasImmediate(header.wr_opcode());
  Put(at, kMagic);
  Put(at + 1, kVersion);
  Put(at + 2, static_cast<std::uint8_t>(header.kind));
  Put(at + 3,
      static_cast<std::uint8_t>((header.solicited ? kSolicitedFlag : 0) |
                                (immediate ? kImmediateFlag : 0)));
  Put(at + 4, header.opcode);
  Put(at + 5, header.detail);
  Put(at + 6, std::uint16_t{0});
  Put(at + 8, header.psn);
  Put(at + 12, header.rkey);
  Put(at + 16, header.remote_address);
  Put(at + 24, header.offset);
  Put(at + 32, header.message_bytes);
  Put(at + 40, header.compare_add);
  Put(at + 48, header.swap);
  Put(at + 56, header.payload_bytes);
  Put(at + 60, header.immediate);
}

bool DecodePacketHeader(std::span<const std::byte, kPacketHeaderBytes> bytes,
                        PacketHeader* header) {
  const std::byte* const at = bytes.data();
  const auto flags = Get<std::uint8_t>(at + 3);
  header->kind = static_cast<PacketKind>(Get<std::uint8_t>(at + 2));
  header->solicited = (flags & kSolicitedFlag) != 0;
  header->opcode = Get<std::uint8_t>(at + 4);
  header->detail = Get<std::uint8_t>(at + 5);
  header->psn = Get<std::uint32_t>(at + 8);
  header->rkey = Get<std::uint32_t>(at + 12);
  header->remote_address = Get<std::uint64_t>(at + 16);
  header->offset = Get<std::uint64_t>(at + 24);
  header->message_bytes = Get<std::uint64_t>(at + 32);
  header->compare_add = Get<std::uint64_t>(at + 40);
  header->swap = Get<std::uint64_t>(at + 48);
  header->payload_bytes = Get<std::uint32_t>(at + 56);
  header->immediate = Get<std::uint32_t>(at + 60);
  if (Get<std::uint8_t>(at) != kMagic ||
      Get<std::uint8_t>(at + 1) != kVersion ||
      (flags & ~(kSolicitedFlag | kImmediateFlag)) != 0 ||
      Get<std::uint16_t>(at + 6) != 0 || header->psn > kMaxPsn ||
      header->payload_bytes > kMaxPayloadBytes) {
    return false;
  }
  switch (header->kind) {
    case PacketKind::kRequest:
      return IsRequest(*header, (flags & kImmediateFlag) != 0);
    case PacketKind::kAck:
      return header->payload_bytes == 0 && header->offset <= kMaxMessageBytes;
    case PacketKind::kNak:
      return header->payload_bytes == 0 && IsNak(*header);
    case PacketKind::kReadResponse:
      return IsReadResponse(*header);
    case PacketKind::kAtomicResponse:
      return header->payload_bytes == 0;
  }
  return false;
}

}  // namespace ringpipe::verbs::soft
