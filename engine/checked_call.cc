#include "engine/checked_call.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

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

Status CheckEachCount(const Call& call, const Counts& counts, const char* name,
                      std::size_t element_bytes, int size) {
  if (counts.size() != static_cast<std::size_t>(size)) {
    return Invalid(call, "there are " + std::to_string(counts.size()) + " " +
                             name + " and " + std::to_string(size) +
                             " ranks; give one for each rank");
  }
  std::size_t elements = 0;
  std::ptrdiff_t bytes = 0;
  for (const std::size_t count : counts) {
    if (__builtin_add_overflow(elements, count, &elements) ||
        __builtin_mul_overflow(elements, element_bytes, &bytes)) {
      return Invalid(
          call, std::string("the ") + name + " are more than memory can hold");
    }
  }
  return Status::Ok();
}

Status CheckCounts(const Call& call, std::size_t element_bytes, int rank,
                   int size) {
  const CollectiveInfo& info = InfoOf(call.collective);
  if (!info.takes_counts() && !info.takes_counts_of_pairs()) {
    return Invalid(call,
                   "there are counts, and no part of its message is one "
                   "rank's; give a count");
  }
  if (call.count != 0) {
    return Invalid(call, "there are a count and counts; give one of them");
  }
  RINGPIPE_RETURN_IF_ERROR(
      CheckEachCount(call, call.counts, "counts", element_bytes, size));
  if (!info.takes_counts_of_pairs()) {
    return call.receive_counts.empty()
               ? Status::Ok()
               : Invalid(call,
                         "there are receive counts, which only an all-to-all "
                         "has; leave them out");
  }
  RINGPIPE_RETURN_IF_ERROR(CheckEachCount(
      call, call.receive_counts, "receive counts", element_bytes, size));
  if (call.counts[rank] != call.receive_counts[rank]) {
    return Invalid(call, "rank " + std::to_string(rank) + " has " +
                             std::to_string(call.counts[rank]) +
                             " elements for itself and takes " +
                             std::to_string(call.receive_counts[rank]) +
                             "; give the same in both counts");
  }
  return Status::Ok();
}

Status CheckScales(const Call& call) {
  if (!InfoOf(call.collective).reduces) {
    return Invalid(call, "it has a scale and reduces nothing; leave both at 1");
  }
  if (!IsFloatingPoint(call.type)) {
    return Invalid(call, std::string(Name(call.type)) +
                             " cannot be scaled; only floating-point types "
                             "can");
  }
  for (const auto& [name, scale] : {std::pair("prescale", call.prescale),
                                    std::pair("postscale", call.postscale)}) {
    if (!std::isfinite(scale)) {
      return Invalid(call, std::string(name) + " is not a finite number");
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
  if (call.prescale != 1 || call.postscale != 1) {
    RINGPIPE_RETURN_IF_ERROR(CheckScales(call));
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
  return call.counts.empty() && call.receive_counts.empty()
             ? Status::Ok()
             : CheckCounts(call, element_bytes, rank, size);
}

Status CheckBuffer(const Call& call, std::size_t element_bytes,
                   const char* name, const void* buffer) {
  if (buffer == nullptr) {
    return Invalid(
        call, std::string(name) + " buffer is null and count is " +
                  (call.counts.empty() ? std::to_string(call.count) : "not 0"));
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

// Where each part of a call with counts begins, and where the last one ends.
std::shared_ptr<const std::vector<std::uint64_t>> BordersOf(
    const Counts& counts) {
  std::vector<std::uint64_t> borders = {0};
  for (const std::size_t count : counts) {
    borders.push_back(borders.back() + count);
  }
  return std::make_shared<const std::vector<std::uint64_t>>(std::move(borders));
}

// What a call reads, or writes.
struct Side {
  const char* name = "";
  const void* buffer = nullptr;
  BufferList list;
  std::size_t bytes = 0;    // of both buffer and list
  std::uint64_t begin = 0;  // in the message
};

Status CheckList(const Call& call, std::size_t element_bytes,
                 const Side& side) {
  const std::string name = std::string(side.name) + " list";
  if (side.buffer != nullptr) {
    return Invalid(call, "there is a " + std::string(side.name) +
                             " buffer and a list; give one of them");
  }
  std::size_t count = 0;
  for (const Buffer& piece : side.list) {
    if (__builtin_add_overflow(count, piece.count, &count)) {
      return Invalid(call, name + " has more than memory can hold");
    }
    if (piece.count > 0) {
      RINGPIPE_RETURN_IF_ERROR(
          CheckBuffer(call, element_bytes, name.c_str(), piece.data));
    }
  }
  if (count != side.bytes / element_bytes) {
    return Invalid(call, name + " has " + std::to_string(count) +
                             " elements in all, and the call needs " +
                             std::to_string(side.bytes / element_bytes));
  }
  return Status::Ok();
}

PieceList ListOf(const Side& side, std::size_t element_bytes) {
  PieceList list(side.begin);
  for (const Buffer& piece : side.list) {
    list.Add(piece.data, piece.count * element_bytes);
  }
  if (side.list.empty()) {
    list.Add(side.buffer, side.bytes);
  }
  return list;
}

bool Overlap(std::uintptr_t a, std::size_t a_bytes, std::uintptr_t b,
             std::size_t b_bytes) {
  return a_bytes > 0 && b_bytes > 0 && a < b + b_bytes && b < a + a_bytes;
}

// Whether two pieces share memory of which one is written.
bool Overlap(const PieceList& read, const PieceList& written) {
  struct Extent {
    std::uintptr_t begin;
    std::uintptr_t end;
    bool is_written;
  };
  std::vector<Extent> extents;
  for (const PieceList* const list : {&read, &written}) {
    for (const PieceList::Piece& piece : list->pieces()) {
      const auto begin = reinterpret_cast<std::uintptr_t>(piece.data);
      extents.push_back({begin, begin + piece.bytes, list == &written});
    }
  }
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  std::uintptr_t end = 0, written_end = 0;  // of those before
  for (const Extent& extent : extents) {
    if (extent.begin < (extent.is_written ? end : written_end)) {
      return true;
    }
    end = std::max(end, extent.end);
    written_end =
        extent.is_written ? std::max(written_end, extent.end) : written_end;
  }
  return false;
}

// What a list has before and behind another one's part of the message.
PieceList Without(const PieceList& list, const PieceList& part) {
  PieceList rest;
  const auto add = [&rest](const std::byte* data, std::uint64_t bytes, bool) {
    rest.Add(data, bytes);
  };
  if (list.begin() < part.begin()) {
    list.ForEach(list.begin(), part.begin() - list.begin(), add);
  }
  if (part.end() < list.end()) {
    list.ForEach(part.end(), list.end() - part.end(), add);
  }
  return rest;
}

Status Overlapping(const Call& call, const char* what) {
  return Invalid(call, std::string(what) +
                           (InfoOf(call.collective).in_place
                                ? " overlap in part; use the same memory (in "
                                  "place) or separate buffers"
                                : " overlap; use separate ones"));
}

// How long a call's buffers are, and which of them there are.
CallBuffers MeasureBuffers(const Call& call, int rank, int size) {
  const CollectiveInfo& info = InfoOf(call.collective);
  const auto [input, output] = info.Of(rank == call.root);
  CallBuffers buffers;
  // Of this rank's part, or of the whole where it has no parts.
  std::uint64_t count = call.count;
  buffers.elements = call.count * (info.has_parts ? size : 1);
  std::uint64_t received = buffers.elements;
  if (!call.counts.empty()) {
    buffers.borders = BordersOf(call.counts);
    received = buffers.elements = buffers.borders->back();
    count = call.counts[rank];
  }
  if (!call.receive_counts.empty()) {
    buffers.receive_borders = BordersOf(call.receive_counts);
    received = buffers.receive_borders->back();
  }
  const std::size_t part = count * SizeOf(call.type);
  buffers.send_bytes =
      BytesOf(input, part, buffers.elements * SizeOf(call.type));
  buffers.receive_bytes = BytesOf(output, part, received * SizeOf(call.type));
  buffers.reads_send = input != Holds::kNothing;
  buffers.writes_receive = output != Holds::kNothing;
  if (call.collective == Collective::kSendReceive) {
    buffers.send_bytes = call.partners.to == Partners::kNone ? 0 : part;
    buffers.receive_bytes = call.partners.from == Partners::kNone ? 0 : part;
  }
  return buffers;
}

// Where this rank's part of the message begins, in bytes, in what holds no more
// than that.
std::uint64_t BeginOf(const Call& call, int rank, const CallBuffers& buffers,
                      Holds holds) {
  if (holds != Holds::kOwnPart) {
    return 0;
  }
  return SizeOf(call.type) * (buffers.borders == nullptr
                                  ? rank * call.count
                                  : (*buffers.borders)[rank]);
}

Side SideOf(const Call& call, int rank, const CallBuffers& buffers,
            bool is_send) {
  const auto [input, output] = InfoOf(call.collective).Of(rank == call.root);
  const Holds holds = is_send ? input : output;
  Side side;
  side.name = is_send ? "send" : "receive";
  if (holds != Holds::kNothing) {
    side.buffer = is_send ? call.send : call.receive;
    side.list = is_send ? call.send_list : call.receive_list;
  }
  side.bytes = is_send ? buffers.send_bytes : buffers.receive_bytes;
  side.begin = BeginOf(call, rank, buffers, holds);
  return side;
}

Status CheckSide(const Call& call, const Side& side) {
  if (!side.list.empty()) {
    return CheckList(call, SizeOf(call.type), side);
  }
  return side.bytes == 0
             ? Status::Ok()
             : CheckBuffer(call, SizeOf(call.type), side.name, side.buffer);
}

// Where the lists are, one of which may be a buffer.
Status PlaceLists(const Call& call, int rank, CallBuffers& buffers) {
  const Side send = SideOf(call, rank, buffers, /*is_send=*/true);
  const Side receive = SideOf(call, rank, buffers, /*is_send=*/false);
  RINGPIPE_RETURN_IF_ERROR(CheckSide(call, receive));
  RINGPIPE_RETURN_IF_ERROR(CheckSide(call, send));
  const auto lists = std::make_shared<const CallLists>(CallLists{
      ListOf(send, SizeOf(call.type)), ListOf(receive, SizeOf(call.type))});
  buffers.lists = lists;
  const PieceList& input = lists->input;
  const PieceList& output = lists->output;
  buffers.in_place = InfoOf(call.collective).in_place && send.bytes > 0 &&
                     receive.bytes > 0 &&
                     (input.Holds(output) || output.Holds(input));
  const bool overlap = buffers.in_place
                           ? Overlap(Without(input, output), output)
                           : Overlap(input, output);
  return overlap ? Overlapping(call, "pieces of the lists") : Status::Ok();
}

// Where the buffers are. A send-receive's are needed also without a partner.
Status PlaceBuffers(const Call& call, int rank, CallBuffers& buffers) {
  const CollectiveInfo& info = InfoOf(call.collective);
  const auto [input, output] = info.Of(rank == call.root);
  const bool exchanges = call.collective == Collective::kSendReceive;
  const std::size_t element_bytes = SizeOf(call.type);
  const auto send = reinterpret_cast<std::uintptr_t>(call.send);
  const auto receive = reinterpret_cast<std::uintptr_t>(call.receive);
  if (buffers.receive_bytes > 0 || exchanges) {
    RINGPIPE_RETURN_IF_ERROR(
        CheckBuffer(call, element_bytes, "receive", call.receive));
    buffers.output_base = receive - BeginOf(call, rank, buffers, output);
  }
  if (buffers.send_bytes > 0 || exchanges) {
    RINGPIPE_RETURN_IF_ERROR(
        CheckBuffer(call, element_bytes, "send", call.send));
    buffers.input_base = send - BeginOf(call, rank, buffers, input);
  }
  if (!buffers.reads_send || !buffers.writes_receive) {
    return Status::Ok();
  }
  const std::size_t whole = buffers.elements * element_bytes;
  buffers.in_place = info.in_place && buffers.input_base == buffers.output_base;
  return !buffers.in_place &&
                 Overlap(send, exchanges ? whole : buffers.send_bytes, receive,
                         exchanges ? whole : buffers.receive_bytes)
             ? Overlapping(call, "send and receive buffers")
             : Status::Ok();
}

}  // namespace

Call OnlyWhatIsRead(const Call& call) {
  if (call.collective == Collective::kBarrier) {
    return {.type = DataType::kInt8};
  }
  Call read = call;
  read.timeout = {};
  read.stream = {};
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
  RINGPIPE_RETURN_IF_ERROR(CheckValues(call, SizeOf(call.type), rank, size));
  CallBuffers buffers = MeasureBuffers(call, rank, size);
  if (!call.send_list.empty() || !call.receive_list.empty()) {
    RINGPIPE_RETURN_IF_ERROR(PlaceLists(call, rank, buffers));
  } else if (buffers.elements > 0 || buffers.receive_bytes > 0) {
    RINGPIPE_RETURN_IF_ERROR(PlaceBuffers(call, rank, buffers));
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
  text += digest.counts == Digest::kOfPairs
              ? "(counts by pair, "
              : (digest.counts == 0 ? "(count " : "(counts by rank, in all ") +
                    std::to_string(digest.count) + ", ";
  text += Name(static_cast<DataType>(digest.type));
  if (exists && InfoOf(collective).reduces) {
    text += ", ";
    text += Name(static_cast<ReduceOp>(digest.op));
  }
  if (digest.postscale != 0) {
    text += ", postscale " + std::to_string(digest.Postscale());
  }
  if (exists && InfoOf(collective).is_rooted()) {
    text += ", root " + std::to_string(digest.root);
  }
  return text + "; algorithm " + AlgorithmName(digest) + ", sub-chunks of " +
         std::to_string(digest.subchunk_elements) + " elements, depth " +
         std::to_string(digest.depth) + ")";
}

}  // namespace ringpipe
