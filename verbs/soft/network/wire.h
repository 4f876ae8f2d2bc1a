// The packets that two software devices on different hosts exchange over TCP,
// once they know each other (introduction.h).
//
//   requester                                responder
//     kRequest psn, offset, payload     ->
//     kRequest ...                      ->
//                                       <-   kAck psn, offset: all before it
//                                            has been executed
//                                       <-   kNak psn: it was not, and nothing
//                                            after it will be until it comes
//                                            again
//     kRequest READ psn                 ->
//                                       <-   kReadResponse psn, offset, payload
//     kRequest atomic psn               ->
//                                       <-   kAtomicResponse psn, value
//
// A packet sequence number stands for a whole message, whatever its size; its
// fragments have growing offsets. Both directions of a connection carry the
// requests of one end and the answers to those of the other.
#ifndef RINGPIPE_VERBS_SOFT_WIRE_H_
#define RINGPIPE_VERBS_SOFT_WIRE_H_

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "verbs/soft/operation.h"

namespace ringpipe::verbs::soft {

inline constexpr std::uint32_t kMaxPsn = 0xffffff;
// How much of a message goes into one packet.
inline constexpr std::uint32_t kMaxPayloadBytes = 128 * 1024;
inline constexpr std::size_t kPacketHeaderBytes = 64;

enum class PacketKind : std::uint8_t {
  kRequest = 1,
  kAck = 2,
  kNak = 3,
  kReadResponse = 4,
  kAtomicResponse = 5,
};

// Why a request was not executed.
enum class NakReason : std::uint8_t {
  kNoReceive = 1,  // RNR: try again after the responder's timer
  kNotReady = 2,   // the queue pair does not receive
  kFailed = 3,     // with a status; it never will be
};

// Little-endian on the wire, each field in its place, the reserved ones 0:
//
//    0 magic | 1 version | 2 kind | 3 flags | 4 opcode | 5 detail | 6 -
//    8 psn (32) | 12 rkey (32) | 16 remote address (64) | 24 offset (64)
//   32 message bytes (64) | 40 compare or add (64) | 48 swap or value (64)
//   56 payload bytes (32) | 60 immediate (32)
struct PacketHeader {
  PacketKind kind = PacketKind::kRequest;
  bool solicited = false;
  // kRequest: an ibv_wr_opcode. kNak: a NakReason.
  std::uint8_t opcode = 0;
  // kNak: an ibv_wc_status for kFailed, ibv_qp_attr::min_rnr_timer for
  // kNoReceive.
  std::uint8_t detail = 0;
  std::uint32_t psn = 0;
  std::uint32_t rkey = 0;
  std::uint64_t remote_address = 0;
  std::uint64_t offset = 0;  // in the message; kAck: what of it was executed
  std::uint64_t message_bytes = 0;
  std::uint64_t compare_add = 0;
  std::uint64_t swap = 0;  // kAtomicResponse: the value before
  std::uint32_t payload_bytes = 0;
  std::uint32_t immediate = 0;  // network byte order, as in ibv_send_wr

  ibv_wr_opcode wr_opcode() const { return static_cast<ibv_wr_opcode>(opcode); }
  NakReason reason() const { return static_cast<NakReason>(opcode); }
};

void EncodePacketHeader(const PacketHeader& header,
                        std::span<std::byte, kPacketHeaderBytes> out);

// False if it is not a header that EncodePacketHeader can have written for a
// packet that makes sense by itself: every size and offset is within limits and
// fits the others.
bool DecodePacketHeader(std::span<const std::byte, kPacketHeaderBytes> bytes,
                        PacketHeader* header);

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_WIRE_H_
