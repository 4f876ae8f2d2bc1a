#ifndef RINGPIPE_ENGINE_CALL_H_
#define RINGPIPE_ENGINE_CALL_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "engine/algorithms.h"
#include "engine/send_receive.h"
#include "pipeline/call_check.h"
#include "reduction/data_type.h"

namespace ringpipe {

// One collective call as the user made it.
struct Call {
  Collective collective = Collective::kBarrier;
  const void* send = nullptr;
  void* receive = nullptr;
  std::size_t count = 0;
  DataType type = DataType::kInt8;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  Partners partners = {};  // of a send-receive

  bool operator==(const Call&) const = default;
};

// A call's buffers on one rank, in bytes.
struct CallBuffers {
  std::uint64_t elements = 0;  // of the whole message, which is cut into chunks
  std::size_t send_bytes = 0;
  std::size_t receive_bytes = 0;
  // Where element 0 of the whole message is, or would be: an all-gather's send
  // buffer and a reduce-scatter's receive buffer hold but one chunk of it.
  std::uintptr_t input_base = 0;
  std::uintptr_t output_base = 0;
  bool reads_send = false;
  bool in_place = false;
};

// kInvalidArgument, saying what is allowed: a type, op, root or partner that
// does not exist, a null or misaligned buffer, buffers that overlap in part, a
// message past the address space.
Result<CallBuffers> CheckCall(const Call& call, int rank, int size);

// Whether such a call has a ReduceOp.
bool Reduces(Collective collective);

// "ring"; where a peer's digest has none that there is, its number.
std::string AlgorithmName(const Digest& digest);

// "allreduce(count 100, float32, sum)", with its chunking: for the message of a
// mismatch between ranks. Values out of range are printed as numbers: the
// digest may be a peer's.
std::string Describe(const Digest& digest);

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_CALL_H_
