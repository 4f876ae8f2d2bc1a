#include "engine/call.h"

namespace ringpipe {
namespace {

Status Invalid(const Call& call, const std::string& why) {
  return {StatusCode::kInvalidArgument,
          std::string(CollectiveName(call.collective)) + ": " + why};
}

Status CheckValues(const Call& call, int rank, int size) {
  if (SizeOf(call.type) == 0) {
    return Invalid(call, "data type " +
                             std::to_string(static_cast<int>(call.type)) +
                             " does not exist; see DataType");
  }
  if (Reduces(call.collective) && !Exists(call.op)) {
    return Invalid(call, "operation " +
                             std::to_string(static_cast<int>(call.op)) +
                             " does not exist; see ReduceOp");
  }
  if (call.root < 0 || call.root >= size) {
    return Invalid(call, "root " + std::to_string(call.root) +
                             " is no rank; there are " + std::to_string(size));
  }
  for (const int partner : {call.partners.to, call.partners.from}) {
    if (partner != Partners::kNone &&
        (partner < 0 || partner >= size || partner == rank)) {
      return Invalid(
          call, "rank " + std::to_string(rank) + " cannot exchange with rank " +
                    std::to_string(partner) + " of " + std::to_string(size) +
                    "; name another rank, or -1 for none");
    }
  }
  std::ptrdiff_t of_all = 0;
  if (__builtin_mul_overflow(call.count, SizeOf(call.type) * size, &of_all)) {
    return Invalid(call, "count " + std::to_string(call.count) +
                             " is more than memory can hold");
  }
  return Status::Ok();
}

Status CheckBuffer(const Call& call, const char* name, const void* buffer) {
  if (buffer == nullptr) {
    return Invalid(call, std::string(name) + " buffer is null and count is " +
                             std::to_string(call.count));
  }
  if ((reinterpret_cast<std::uintptr_t>(buffer) & (SizeOf(call.type) - 1)) !=
      0) {
    return Invalid(call, std::string(name) +
                             " buffer is not aligned to its element type (" +
                             std::string(Name(call.type)) + ")");
  }
  return Status::Ok();
}

bool Overlap(std::uintptr_t a, std::size_t a_bytes, std::uintptr_t b,
             std::size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

}  // namespace

Result<CallBuffers> CheckCall(const Call& call, int rank, int size) {
  RINGPIPE_RETURN_IF_ERROR(CheckValues(call, rank, size));
  const std::size_t bytes = call.count * SizeOf(call.type);
  const bool scatters = call.collective == Collective::kReduceScatter;
  const bool gathers = call.collective == Collective::kAllGather;
  CallBuffers buffers;
  buffers.elements = call.count * (scatters || gathers ? size : 1);
  buffers.send_bytes = bytes * (scatters ? size : 1);
  buffers.receive_bytes = bytes * (gathers ? size : 1);
  buffers.reads_send =
      call.collective != Collective::kBroadcast || rank == call.root;
  if (call.collective == Collective::kSendReceive) {
    buffers.send_bytes = call.partners.to == Partners::kNone ? 0 : bytes;
    buffers.receive_bytes = call.partners.from == Partners::kNone ? 0 : bytes;
  }
  if (call.count == 0) {
    return buffers;  // no byte is touched
  }
  RINGPIPE_RETURN_IF_ERROR(CheckBuffer(call, "receive", call.receive));
  const auto send = reinterpret_cast<std::uintptr_t>(call.send);
  const auto receive = reinterpret_cast<std::uintptr_t>(call.receive);
  buffers.input_base = send - (gathers ? rank * bytes : 0);
  buffers.output_base = receive - (scatters ? rank * bytes : 0);
  if (!buffers.reads_send) {
    return buffers;
  }
  RINGPIPE_RETURN_IF_ERROR(CheckBuffer(call, "send", call.send));
  buffers.in_place = buffers.input_base == buffers.output_base;
  const bool exchanges = call.collective == Collective::kSendReceive;
  if ((!buffers.in_place || exchanges) &&
      Overlap(send, exchanges ? bytes : buffers.send_bytes, receive,
              exchanges ? bytes : buffers.receive_bytes)) {
    return Invalid(
        call, exchanges ? "send and receive buffers overlap; use separate ones"
                        : "send and receive buffers overlap in part; use the "
                          "same memory (in place) or separate buffers");
  }
  return buffers;
}

bool Reduces(Collective collective) {
  return collective == Collective::kAllReduce ||
         collective == Collective::kReduceScatter;
}

std::string AlgorithmName(const Digest& digest) {
  if (digest.algorithm < Algorithms().size()) {
    return std::string(Algorithms()[digest.algorithm].name);
  }
  return static_cast<Collective>(digest.collective) == Collective::kSendReceive
             ? std::string(SendReceiveAlgorithm().name)
             : std::to_string(digest.algorithm);
}

std::string Describe(const Digest& digest) {
  const auto collective = static_cast<Collective>(digest.collective);
  std::string text =
      digest.collective < kCollectives || collective == Collective::kSendReceive
          ? CollectiveName(collective)
          : "collective " + std::to_string(digest.collective);
  text += "(count " + std::to_string(digest.count) + ", ";
  text += Name(static_cast<DataType>(digest.type));
  if (Reduces(collective)) {
    text += ", ";
    text += Name(static_cast<ReduceOp>(digest.op));
  }
  if (collective == Collective::kBroadcast) {
    text += ", root " + std::to_string(digest.root);
  }
  return text + "; algorithm " + AlgorithmName(digest) + ", sub-chunks of " +
         std::to_string(digest.subchunk_elements) + " elements, depth " +
         std::to_string(digest.depth) + ")";
}

}  // namespace ringpipe
