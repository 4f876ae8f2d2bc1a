#ifndef RINGPIPE_ENGINE_CHECKED_CALL_H_
#define RINGPIPE_ENGINE_CHECKED_CALL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/algorithms.h"
#include "engine/call.h"
#include "pipeline/abilities.h"
#include "pipeline/call_check.h"
#include "pipeline/piece_list.h"

namespace ringpipe {

// A call's buffers, where one of them is a list.
struct CallLists {
  PieceList input;
  PieceList output;
};

// A call's buffers on one rank, in bytes.
struct CallBuffers {
  // Of the whole message, which is cut into chunks. Where receive_borders are,
  // of what is sent.
  std::uint64_t elements = 0;
  // Where each rank's part begins in it, and its end; null where parts are
  // equally long.
  std::shared_ptr<const std::vector<std::uint64_t>> borders;
  // Of an all-to-all with counts, where those above are what it sends: likewise
  // of what it receives. Else null.
  std::shared_ptr<const std::vector<std::uint64_t>> receive_borders;
  std::size_t send_bytes = 0;
  std::size_t receive_bytes = 0;
  // Where element 0 of the whole message is, or would be: a buffer may hold but
  // this rank's part of it.
  std::uintptr_t input_base = 0;
  std::uintptr_t output_base = 0;
  bool reads_send = false;
  bool writes_receive = false;
  bool in_place = false;
  // Whose memory they are: not CheckCall's to say.
  Owner input_owner = Owner::kHost;
  Owner output_owner = Owner::kHost;
  // Instead of the bases above; else null.
  std::shared_ptr<const CallLists> lists;
};

// Without what is no part of what is called: the timeout; an operation or a
// root where the collective has none; of a barrier, which has no elements, all
// but that.
Call OnlyWhatIsRead(const Call& call);

// kInvalidArgument, saying what is allowed: a collective, type, op, root or
// partner that does not exist, a null or misaligned buffer, a list of other
// length than the call's, buffers that overlap and are not in place, a message
// past the address space.
Result<CallBuffers> CheckCall(const Call& call, int rank, int size);

// "ring"; where a peer's digest has none that there is, its number.
std::string AlgorithmName(const Digest& digest);

// "allreduce(count 100, float32, sum)", with its chunking: for the message of a
// mismatch between ranks. Values out of range are printed as numbers: the
// digest may be a peer's.
std::string Describe(const Digest& digest);

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_CHECKED_CALL_H_
