// What a requester asks of a responder.
#ifndef RINGPIPE_VERBS_SOFT_OPERATION_H_
#define RINGPIPE_VERBS_SOFT_OPERATION_H_

#include <infiniband/verbs.h>
#include <sys/uio.h>

#include <cstdint>
#include <span>

namespace ringpipe::verbs::soft {

// How much a message may carry.
inline constexpr std::uint64_t kMaxMessageBytes = std::uint64_t{1} << 30;

// One message, or a fragment of one where the message comes in pieces (over a
// network). Its local memory has been checked by whoever made it.
struct Operation {
  ibv_wr_opcode opcode = IBV_WR_SEND;
  bool solicited = false;
  std::uint32_t immediate = 0;  // network byte order
  // Of RDMA and atomics; of the whole message, not of the fragment.
  std::uint64_t remote_address = 0;
  std::uint32_t rkey = 0;
  std::uint64_t compare_add = 0;
  std::uint64_t swap = 0;
  // The fragment's source; of READ and atomics its target.
  std::span<const iovec> local;
  std::uint64_t offset = 0;  // of the fragment in the message
  std::uint64_t bytes = 0;   // of the fragment
  std::uint64_t message_bytes = 0;
  // A READ that was found good before, and is answered although what came
  // after it was not.
  bool accepted = false;

  bool is_first() const { return offset == 0; }
  bool is_last() const { return offset + bytes == message_bytes; }
};

// What came of an attempt to execute an operation.
enum class Step {
  kDone,
  kFailed,     // with a status for the requester
  kNotReady,   // the responder is not there, or not connected
  kNoReceive,  // RNR
  kInFlight,   // on its way through slots: ask again
};

inline bool IsSend(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM;
}

inline bool IsWrite(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

inline bool IsAtomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
         opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

inline bool HasImmediate(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

// Whether it consumes a receive at the responder.
inline bool NeedsReceive(ibv_wr_opcode opcode) {
  return IsSend(opcode) || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_OPERATION_H_
