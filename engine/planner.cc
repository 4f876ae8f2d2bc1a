#include "engine/planner.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "engine/send_receive.h"
#include "pipeline/short_run.h"

namespace ringpipe {
namespace {

// The outputs of a host's ranks, from where on caches do not hold them.
constexpr std::size_t kNonTemporalOutputBytes = 64 << 20;
// 2^64 divided by it, and odd: all bits of a factor take part in the upper bits
// of a product.
constexpr std::uint64_t kGoldenRatio = 0x9E3779B97F4A7C15;
// Of a message whose length not all ranks know: a long one. As bytes and as
// elements it leaves room for any factor.
constexpr std::uint64_t kAnyBytes = 1 << 30;
// Sub-chunks of short messages: not so small that posting costs more than the
// wire.
constexpr std::uint64_t kLeastSubchunkBytes = 16 * 1024;

std::string NameOf(const Digest& digest) {
  return "call number " + std::to_string(digest.sequence) + ", " +
         Describe(digest) + ",";
}

// All ranks compute the same from the same call. A slot holds the widest range:
// either one sub-chunk of each of its chunks, or, where the walk is by chunks
// and they are all that short, whole chunks; else ranges are split there.
// `chunk_elements`: of the longest.
std::uint64_t SubchunkElements(const Planner::Job& job,
                               std::uint64_t chunk_elements, Walk walk,
                               const Shape& shape, std::size_t element_bytes) {
  const std::uint64_t chunk_bytes = chunk_elements * element_bytes;
  if (walk == Walk::kChunks && shape.widest > 1 &&
      chunk_bytes * shape.widest <= job.subchunk_bytes) {
    return std::max<std::uint64_t>(chunk_elements, 1);
  }
  const std::uint64_t most =
      walk == Walk::kSegments
          ? std::max<std::uint64_t>(job.subchunk_bytes / shape.widest,
                                    element_bytes)
          : job.subchunk_bytes;
  const std::uint64_t even = (chunk_bytes / job.depth + 63) / 64 * 64;
  const std::uint64_t bytes =
      std::clamp(even, std::min(kLeastSubchunkBytes, most), most);
  return std::max<std::uint64_t>(bytes / element_bytes, 1);
}

// Of the shortest chunk that is not empty, and of the longest.
struct ChunkLengths {
  std::uint64_t shortest = 0;
  std::uint64_t longest = 0;
};
ChunkLengths LengthsOf(const CallBuffers& buffers, int chunks) {
  if (buffers.borders == nullptr) {
    const std::uint64_t longest =
        buffers.elements / chunks + (buffers.elements % chunks != 0);
    return {longest, longest};
  }
  ChunkLengths lengths = {std::numeric_limits<std::uint64_t>::max(), 0};
  for (const auto& borders : {buffers.borders, buffers.receive_borders}) {
    for (std::size_t i = 1; borders != nullptr && i < borders->size(); ++i) {
      const std::uint64_t length = (*borders)[i] - (*borders)[i - 1];
      lengths.longest = std::max(lengths.longest, length);
      lengths.shortest =
          length == 0 ? lengths.shortest : std::min(lengths.shortest, length);
    }
  }
  lengths.shortest = std::min(lengths.shortest, lengths.longest);
  return lengths;
}

// Digest::counts.
std::uint64_t HashOfCounts(const CallBuffers& buffers) {
  if (buffers.borders == nullptr) {
    return 0;
  }
  if (buffers.receive_borders != nullptr) {
    return Digest::kOfPairs;
  }
  std::uint64_t hash = 0;
  for (const std::uint64_t border : *buffers.borders) {
    hash = std::rotl((hash ^ border) * kGoldenRatio, 31);
  }
  return std::max(hash, Digest::kOfPairs + 1);
}

// In the registry, or the one after it.
std::uint16_t NumberOf(const AlgorithmInfo& algorithm) {
  return static_cast<std::uint16_t>(&algorithm == &SendReceiveAlgorithm()
                                        ? Algorithms().size()
                                        : &algorithm - Algorithms().data());
}

// What a schedule takes for its Member::root.
int RootOf(const Call& call) {
  return call.collective == Collective::kSendReceive ? AsRoot(call.partners)
                                                     : call.root;
}

}  // namespace

Planner::Recent& Planner::RecentOf(const Call& call) {
  const auto send = reinterpret_cast<std::uintptr_t>(call.send);
  const auto receive = reinterpret_cast<std::uintptr_t>(call.receive);
  const std::uint64_t fields =
      send ^ std::rotl(receive, 24) ^ std::rotl(call.count, 48) ^
      static_cast<std::uint64_t>(call.collective) << 40;
  // By the upper bits of the product, which all of them have a part in.
  return recent_[(fields * kGoldenRatio) >> (64 - kRecentBits)];
}

const Operation* Planner::In(const Timing& timing, Operation& operation) {
  operation.digest.sequence = timing.sequence;
  operation.deadline = timing.deadline;
  operation.earliest_deadline = timing.earliest_deadline;
  return &operation;
}

const Operation* Planner::PrepareAgain(const CheckedCall& checked,
                                       const Timing& timing) {
  if (checked.device != nullptr) {
    return nullptr;
  }
  Recent& recent = RecentOf(checked.call);
  return recent.call == checked.call ? In(timing, recent.operation) : nullptr;
}

// Each rank finds the same: where pairs have counts of their own, by nothing
// that depends on them.
const AlgorithmInfo& Planner::AlgorithmFor(const CheckedCall& checked) const {
  const Call& call = checked.call;
  const CallBuffers& buffers = checked.buffers;
  if (call.collective == Collective::kSendReceive) {
    return SendReceiveAlgorithm();
  }
  const bool of_pairs = buffers.receive_borders != nullptr;
  const AlgorithmInfo& chosen = job_.algorithms.For(
      call.collective,
      of_pairs ? kAnyBytes : buffers.elements * SizeOf(call.type),
      job_.common_host);
  return of_pairs && !chosen.takes_counts_of_pairs
             ? *FindAlgorithm(Collective::kAllToAll, "pairwise")
             : chosen;
}

Result<const Operation*> Planner::Prepare(const CheckedCall& checked,
                                          const Timing& timing) {
  const Call& call = checked.call;
  const CallBuffers& buffers = checked.buffers;
  const AlgorithmInfo& algorithm = AlgorithmFor(checked);
  const Shape& shape = FindShape(algorithm);
  // Here and below the memory for short steps is kept: nothing is allocated,
  // but where parts differ.
  std::vector<ShortStep> short_steps = std::move(operation_.short_steps);
  operation_ = Describe(checked, algorithm, shape);
  operation_.short_steps = std::move(short_steps);
  RINGPIPE_RETURN_IF_ERROR(FindReach(checked, operation_));
  PlanKey key;
  key.algorithm = &algorithm;
  key.root = RootOf(call);
  key.split = HasToSplit(operation_.chunking, WalkOf(call.collective), shape,
                         job_.subchunk_bytes / SizeOf(call.type));
  key.in_place = buffers.in_place;
  key.in_pieces = buffers.lists != nullptr;
  key.scales_input = operation_.prescale != 1;
  key.input_owner = buffers.input_owner;
  key.output_owner = buffers.output_owner;
  key.message_bytes = EagerLimit(operation_, shape);
  RINGPIPE_ASSIGN_OR_RETURN(operation_.plan, FindPlan(key, operation_));
  // Short slots are not prepared for the device.
  operation_.message_bytes = checked.device == nullptr ? key.message_bytes : 0;
  ShortRun::Measure(operation_);
  // Such a call goes by no reach, which may be another one the next time.
  if (checked.device == nullptr && !operation_.short_steps.empty() &&
      buffers.borders == nullptr) {
    Recent& recent = RecentOf(call);
    recent.call = call;
    recent.operation = operation_;
  }
  return In(timing, operation_);
}

// A device's memory is reached by that alone; lists, and what has to be scaled,
// by nobody.
Status Planner::FindReach(const CheckedCall& checked,
                          Operation& operation) const {
  const Call& call = checked.call;
  const CallBuffers& buffers = checked.buffers;
  if (buffers.lists != nullptr) {
    operation.input.list = &buffers.lists->input;
    operation.output.list = &buffers.lists->output;
    return Status::Ok();
  }
  const std::size_t element_bytes = SizeOf(call.type);
  // Of the shortest chunks that an algorithm may make.
  const std::uint64_t message_bytes =
      SubchunkElements(job_, LengthsOf(buffers, job_.size).shortest,
                       Walk::kSegments, {.chunks = job_.size}, element_bytes) *
      element_bytes;
  const auto is_reached = [&operation](Owner owner) {
    return owner == Owner::kHost && operation.prescale == 1;
  };
  if (is_reached(buffers.input_owner) && buffers.reads_send &&
      buffers.send_bytes > 0) {
    RINGPIPE_ASSIGN_OR_RETURN(
        operation.input,
        job_.transports->ReachOf(
            {call.send, buffers.send_bytes, false, message_bytes}));
  }
  if (is_reached(buffers.output_owner) && buffers.receive_bytes > 0) {
    RINGPIPE_ASSIGN_OR_RETURN(
        operation.output,
        job_.transports->ReachOf(
            {call.receive, buffers.receive_bytes, true, message_bytes}));
  }
  operation.input.base = buffers.input_base;
  operation.output.base = buffers.output_base;
  operation.input.on_device = buffers.input_owner == Owner::kDevice;
  operation.output.on_device = buffers.output_owner == Owner::kDevice;
  return Status::Ok();
}

const Shape& Planner::FindShape(const AlgorithmInfo& algorithm) {
  const auto found = shapes_.find(&algorithm);
  return found != shapes_.end()
             ? found->second
             : shapes_
                   .emplace(&algorithm,
                            ShapeOf(algorithm, {0, job_.size, 0, job_.hosts}))
                   .first->second;
}

Operation Planner::Describe(const CheckedCall& checked,
                            const AlgorithmInfo& algorithm,
                            const Shape& shape) const {
  const Call& call = checked.call;
  const CallBuffers& buffers = checked.buffers;
  const bool of_pairs = buffers.receive_borders != nullptr;
  const std::uint64_t subchunk_elements = SubchunkElements(
      job_, of_pairs ? kAnyBytes : LengthsOf(buffers, shape.chunks).longest,
      WalkOf(call.collective), shape, SizeOf(call.type));
  Operation operation;
  operation.name = &NameOf;
  operation.host = job_.host;
  operation.device = checked.device;
  operation.type = call.type;
  operation.op = call.op;
  operation.prescale = call.prescale;
  operation.postscale = call.postscale;
  if (job_.size == 1) {  // there is no reduction after which to scale
    operation.prescale *= std::exchange(operation.postscale, 1);
  }
  operation.depth = job_.depth;
  operation.copies_out_non_temporal = CopiesOutNonTemporal(checked);
  operation.chunking =
      buffers.borders == nullptr
          ? Chunking(buffers.elements, shape.chunks, subchunk_elements,
                     WalkOf(call.collective))
          : Chunking(*buffers.borders, subchunk_elements);
  if (of_pairs) {
    operation.output_chunking =
        Chunking(*buffers.receive_borders, subchunk_elements);
  }
  for (int part = 0; buffers.borders != nullptr && part < job_.size; ++part) {
    operation.subchunks_of_inputs.push_back(
        operation.ChunkingOf(Input(part)).SubchunksOf(part));
    operation.subchunks_of_outputs.push_back(
        operation.ChunkingOf(Output(part)).SubchunksOf(part));
  }
  operation.digest = {
      .count = of_pairs                     ? 0
               : buffers.borders == nullptr ? call.count
                                            : buffers.elements,
      .counts = HashOfCounts(buffers),
      .collective = static_cast<std::uint16_t>(call.collective),
      .algorithm = NumberOf(algorithm),
      .type = static_cast<std::uint16_t>(call.type),
      .op = static_cast<std::uint16_t>(call.op),
      .subchunk_elements = static_cast<std::uint32_t>(subchunk_elements),
      .root = static_cast<std::uint16_t>(call.root),
      .depth = static_cast<std::uint16_t>(operation.depth),
      .postscale = Digest::BitsOf(call.postscale)};
  return operation;
}

// In place between two ranks, what is written was read a moment ago.
bool Planner::CopiesOutNonTemporal(const CheckedCall& checked) const {
  return checked.buffers.elements * SizeOf(checked.call.type) *
                 job_.ranks_here >=
             kNonTemporalOutputBytes &&
         (!checked.buffers.in_place || job_.size > 2);
}

// PlanOptions::message_bytes. Those of equally short messages share their
// plans.
std::uint32_t Planner::EagerLimit(const Operation& operation,
                                  const Shape& shape) const {
  const std::uint64_t bytes =
      operation.chunking.MostOf(shape.widest) * SizeOf(operation.type);
  std::uint32_t limit = 0;
  if (operation.chunking.subchunks() == 1 &&
      !operation.output_chunking.has_value()) {
    for (const PlanOptions::Peer& peer : peers_) {
      const std::uint32_t eager_bytes = peer.abilities.eager_bytes;
      if (eager_bytes > 0 && bytes <= eager_bytes &&
          (limit == 0 || eager_bytes < limit)) {
        limit = eager_bytes;
      }
    }
  }
  return limit;
}

Result<const Plan*> Planner::FindPlan(PlanKey key, const Operation& operation) {
  for (int i = 0; i < kMostTransports; ++i) {
    key.input[i] = operation.input.reached[i].reach;
    key.output[i] = operation.output.reached[i].reach;
  }
  const auto found = plans_.find(key);
  if (found != plans_.end()) {
    return &found->second;
  }
  const AlgorithmInfo& algorithm = *key.algorithm;
  const std::vector<PlanOptions::Peer> peers =
      job_.transports->Peers(operation.input, operation.output);
  const Member self = {job_.rank, job_.size, key.root, job_.hosts};
  PlanOptions options;
  options.in_place = key.in_place;
  options.in_pieces = key.in_pieces;
  options.scales_input = key.scales_input;
  options.direct_over_sent = algorithm.direct_over_sent;
  options.input_owner = key.input_owner;
  options.output_owner = key.output_owner;
  options.reducer =
      key.input_owner == Owner::kHost && key.output_owner == Owner::kHost
          ? std::nullopt
          : job_.reducer;
  options.message_bytes = key.message_bytes;
  options.peers = peers;
  options.same_to_all =
      key.message_bytes > 0 && &algorithm != &SendReceiveAlgorithm() &&
      std::any_of(
          peers.begin(), peers.end(),
          [](const auto& peer) { return peer.abilities.eager_to_all; }) &&
      SameToAll(algorithm, self);
  const Schedule schedule = algorithm.algorithm(self);
  RINGPIPE_ASSIGN_OR_RETURN(
      Plan plan, Compile(key.split ? SplitRanges(schedule) : schedule,
                         job_.rank, job_.size, options));
  return &plans_.emplace(key, std::move(plan)).first->second;
}

}  // namespace ringpipe
