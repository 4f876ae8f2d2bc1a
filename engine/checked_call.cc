#include "engine/checked_call.h"

#include "engine/send_receive.h"

namespace ringpipe {
namespace {

Status Invalid(const Call& call, const std::string& why) {
  return {StatusCode::kInvalidArgument,
          std::string(CollectiveName(call.collective)) + ": " + why};
}

Status CheckPartners(const Call& call, int rank, int size) {
  for (const int partner : {call.partners.to, call.partners.from}) {
    if (partner != Partners::kNone &&
        (partner < 0 || partner >= size || partner == rank)) {
      return Invalid(
          call, "rank " + std::to_string(rank) + " cannot exchange with rank " +
                    std::to_string(partner) + " of " + std::to_string(size) +
                    "; name another rank, or -1 for none");
    }
    if (partner > kLastPartner) {
      return Invalid(call, "rank " + std::to_string(partner) +
                               " cannot be a partner: only ranks 0 to " +
                               std::to_string(kLastPartner) + " can");
    }
  }
  return Status::Ok();
}

Status CheckValues(const Call& call, std::size_t element_bytes, int rank,
                   int size) {
  if (element_bytes == 0) {
    return Invalid(call, "data type " +
                             std::to_string(static_cast<int>(call.type)) +
                             " does not exist; see DataType");
  }
  if (InfoOf(call.collective).reduces && !Exists(call.op)) {
    return Invalid(call, "operation " +
                             std::to_string(static_cast<int>(call.op)) +
                             " does not exist; see ReduceOp");
  }
  if (call.root < 0 || call.root >= size) {
    return Invalid(call, "root " + std::to_string(call.root) +
                             " is no rank; there are " + std::to_string(size));
  }
  if (call.collective == Collective::kSendReceive) {
    RINGPIPE_RETURN_IF_ERROR(CheckPartners(call, rank, size));
  }
  std::ptrdiff_t of_all = 0;
  if (__builtin_mul_overflow(call.count, element_bytes * size, &of_all)) {
    return Invalid(call, "count " + std::to_string(call.count) +
                             " is more than memory can hold");
  }
  return Status::Ok();
}

Status CheckBuffer(const Call& call, std::size_t element_bytes,
                   const char* name, const void* buffer) {
  if (buffer == nullptr) {
    return Invalid(call, std::string(name) + " buffer is null and count is " +
                             std::to_string(call.count));
  }
  if ((reinterpret_cast<std::uintptr_t>(buffer) & (element_bytes - 1)) != 0) {
    return Invalid(call, std::string(name) +
                             " buffer is not aligned to its element type (" +
                             std::string(Name(call.type)) + ")");
  }
  return Status::Ok();
}

std::size_t BytesOf(Holds holds, std::size_t part, std::size_t whole) {
  return holds == Holds::kNothing ? 0 : holds == Holds::kOwnPart ? part : whole;
}

bool Overlap(std::uintptr_t a, std::size_t a_bytes, std::uintptr_t b,
             std::size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

}  // namespace

Call OnlyWhatIsRead(const Call& call) {
  if (call.collective == Collective::kBarrier) {
    return {.type = DataType::kInt8};
  }
  Call read = call;
  read.timeout = {};
  if (Exists(call.collective)) {
    const CollectiveInfo& info = InfoOf(call.collective);
    read.op = info.reduces ? call.op : ReduceOp::kSum;
    read.root = info.is_rooted() ? call.root : 0;
  }
  return read;
}

Result<CallBuffers> CheckCall(const Call& call, int rank, int size) {
  if (!Exists(call.collective)) {
    return Status(StatusCode::kInvalidArgument,
                  "collective " +
                      std::to_string(static_cast<int>(call.collective)) +
                      " does not exist; see Collective");
  }
  const std::size_t element_bytes = SizeOf(call.type);
  RINGPIPE_RETURN_IF_ERROR(CheckValues(call, element_bytes, rank, size));
  const CollectiveInfo& info = InfoOf(call.collective);
  const auto [input, output] = info.Of(rank == call.root);
  const std::size_t bytes = call.count * element_bytes;
  const std::size_t whole = bytes * (info.has_parts ? size : 1);
  CallBuffers buffers;
  buffers.elements = call.count * (info.has_parts ? size : 1);
  buffers.send_bytes = BytesOf(input, bytes, whole);
  buffers.receive_bytes = BytesOf(output, bytes, whole);
  buffers.reads_send = input != Holds::kNothing;
  buffers.writes_receive = output != Holds::kNothing;
  if (call.collective == Collective::kSendReceive) {
    buffers.send_bytes = call.partners.to == Partners::kNone ? 0 : bytes;
    buffers.receive_bytes = call.partners.from == Partners::kNone ? 0 : bytes;
  }
  if (call.count == 0) {
    return buffers;  // no byte is touched
  }
  const auto send = reinterpret_cast<std::uintptr_t>(call.send);
  const auto receive = reinterpret_cast<std::uintptr_t>(call.receive);
  if (buffers.writes_receive) {
    RINGPIPE_RETURN_IF_ERROR(
        CheckBuffer(call, element_bytes, "receive", call.receive));
    buffers.output_base =
        receive - (output == Holds::kOwnPart ? rank * bytes : 0);
  }
  if (buffers.reads_send) {
    RINGPIPE_RETURN_IF_ERROR(
        CheckBuffer(call, element_bytes, "send", call.send));
    buffers.input_base = send - (input == Holds::kOwnPart ? rank * bytes : 0);
  }
  if (!buffers.reads_send || !buffers.writes_receive) {
    return buffers;
  }
  buffers.in_place = info.in_place && buffers.input_base == buffers.output_base;
  const bool exchanges = call.collective == Collective::kSendReceive;
  if (!buffers.in_place &&
      Overlap(send, exchanges ? bytes : buffers.send_bytes, receive,
              exchanges ? bytes : buffers.receive_bytes)) {
    return Invalid(
        call, info.in_place
                  ? "send and receive buffers overlap in part; use the same "
                    "memory (in place) or separate buffers"
                  : "send and receive buffers overlap; use separate ones");
  }
  return buffers;
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
  const bool exists = Exists(collective);
  std::string text = exists ? CollectiveName(collective)
                            : "collective " + std::to_string(digest.collective);
  text += "(count " + std::to_string(digest.count) + ", ";
  text += Name(static_cast<DataType>(digest.type));
  if (exists && InfoOf(collective).reduces) {
    text += ", ";
    text += Name(static_cast<ReduceOp>(digest.op));
  }
  if (exists && InfoOf(collective).is_rooted()) {
    text += ", root " + std::to_string(digest.root);
  }
  return text + "; algorithm " + AlgorithmName(digest) + ", sub-chunks of " +
         std::to_string(digest.subchunk_elements) + " elements, depth " +
         std::to_string(digest.depth) + ")";
}

}  // namespace ringpipe
