#include "engine/planner.h"

#include <algorithm>
#include <bit>
#include <string>

#include "pipeline/host/process_memory.h"
#include "pipeline/short_run.h"

namespace ringpipe {
namespace {

// Where a whole buffer can be registered for next to nothing: below this a copy
// into a slot is cheaper still.
constexpr std::size_t kTemporaryRegistrationBytes = 256 * 1024;
// From here on the kernel may copy private memory faster than slots do.
constexpr std::size_t kReachedBytes = 4 << 20;
// From here on slots that are written past the caches may be faster, where
// nobody claims their lines: where ranks outnumber processors.
constexpr std::size_t kPastCachesBytes = 64 << 10;
// The outputs of a host's ranks, from where on caches do not hold them.
constexpr std::size_t kStreamedBytes = 64 << 20;
// Sub-chunks of short messages: not so small that posting costs more than the
// wire.
constexpr std::uint64_t kLeastSubchunkBytes = 16 * 1024;

std::string NameOf(const Digest& digest) {
  return "call number " + std::to_string(digest.sequence) + ", " +
         Describe(digest) + ",";
}

// All ranks compute the same from the same call.
std::uint64_t SubchunkElements(std::uint64_t most, std::uint64_t depth,
                               std::uint64_t elements, int chunks,
                               std::size_t element_bytes) {
  const std::uint64_t chunk_bytes =
      (elements / chunks + (elements % chunks != 0)) * element_bytes;
  const std::uint64_t even = (chunk_bytes / depth + 63) / 64 * 64;
  const std::uint64_t bytes =
      std::clamp(even, std::min(kLeastSubchunkBytes, most), most);
  return std::max<std::uint64_t>(bytes / element_bytes, 1);
}

template <typename F>
bool AllBuffers(const CheckedCall& checked, F f) {
  const auto& [call, buffers, accelerator] = checked;
  return f(call.receive, buffers.receive_bytes) &&
         (!buffers.reads_send || f(call.send, buffers.send_bytes));
}

}  // namespace

Planner::Recent& Planner::RecentOf(const Call& call) {
  const auto send = reinterpret_cast<std::uintptr_t>(call.send);
  const auto receive = reinterpret_cast<std::uintptr_t>(call.receive);
  return recent_[(static_cast<std::size_t>(call.collective) + call.count +
                  send / 64 + receive / 64) %
                 recent_.size()];
}

const Operation* Planner::In(const Turn& turn, Operation& operation) {
  operation.digest.sequence = turn.sequence;
  operation.deadline = turn.deadline;
  operation.earliest_deadline = turn.earliest_deadline;
  return &operation;
}

const Operation* Planner::PrepareAgain(const CheckedCall& checked,
                                       const Turn& turn) {
  if (checked.accelerator != job_.host) {
    return nullptr;
  }
  Recent& recent = RecentOf(checked.call);
  return recent.call == checked.call ? In(turn, recent.operation) : nullptr;
}

Result<const Operation*> Planner::Prepare(const CheckedCall& checked,
                                          const Turn& turn,
                                          Registration* temporary) {
  const auto& [call, buffers, accelerator] = checked;
  // Device memory is reached by the accelerator, not by the RDMA device.
  const bool host = accelerator == job_.host;
  way_ = WayOf(checked);
  RINGPIPE_ASSIGN_OR_RETURN(
      const UserBuffer input,
      FindMemory(buffers.input_base, call.send,
                 host && buffers.reads_send ? buffers.send_bytes : 0,
                 /*written=*/false, temporary));
  RINGPIPE_ASSIGN_OR_RETURN(
      const UserBuffer output,
      FindMemory(buffers.output_base, call.receive,
                 host ? buffers.receive_bytes : 0, /*written=*/true, nullptr));
  const AlgorithmInfo& algorithm =
      AlgorithmFor(call.collective, buffers.elements * SizeOf(call.type),
                   job_.one_host ? job_.size : 0);
  operation_ = Describe(checked, algorithm);
  operation_.input = input;
  operation_.output = output;
  PlanOptions options;
  options.in_place = buffers.in_place;
  options.input_registered = input.registered;
  options.output_registered = output.registered;
  options.input_shared = input.shared;
  options.output_shared = output.shared;
  options.register_sends = host && RegistersSends(checked);
  options.on_host = host;
  options.message_bytes = EagerLimit(operation_);
  RINGPIPE_ASSIGN_OR_RETURN(operation_.plan,
                            FindPlan(algorithm, call.root, options));
  // Such a call goes by no registration, which may not be there the next time.
  if (host && ShortRun::Takes(operation_)) {
    RecentOf(call) = {call, operation_};
  }
  return In(turn, operation_);
}

Operation Planner::Describe(const CheckedCall& checked,
                            const AlgorithmInfo& algorithm) const {
  const Call& call = checked.call;
  const int chunks = algorithm.whole ? 1 : job_.size;
  const std::uint64_t subchunk_elements =
      SubchunkElements(job_.subchunk_bytes, job_.depth,
                       checked.buffers.elements, chunks, SizeOf(call.type));
  Operation operation;
  operation.name = &NameOf;
  operation.accelerator = checked.accelerator;
  operation.type = call.type;
  operation.op = call.op;
  operation.depth = job_.depth;
  operation.streams_in = way_ == kPastCaches;
  operation.streams_out = StreamsOut(checked);
  operation.chunking =
      Chunking(checked.buffers.elements, chunks, subchunk_elements);
  operation.digest = {
      .count = call.count,
      .collective = static_cast<std::uint32_t>(call.collective),
      .algorithm = static_cast<std::uint32_t>(&algorithm - Algorithms().data()),
      .type = static_cast<std::uint32_t>(call.type),
      .op = static_cast<std::uint32_t>(call.op),
      .root = static_cast<std::uint32_t>(call.root),
      .depth = static_cast<std::uint32_t>(operation.depth),
      .subchunk_elements = subchunk_elements};
  return operation;
}

bool Planner::RegistersSends(const CheckedCall& checked) const {
  // Of the shortest chunks that an algorithm may make.
  return SubchunkElements(job_.subchunk_bytes, job_.depth,
                          checked.buffers.elements, job_.size,
                          SizeOf(checked.call.type)) *
             SizeOf(checked.call.type) >=
         job_.registered_sends_from;
}

// In place between two ranks, what is written was read a moment ago.
bool Planner::StreamsOut(const CheckedCall& checked) const {
  return checked.buffers.elements * SizeOf(checked.call.type) *
                 job_.ranks_here >=
             kStreamedBytes &&
         (!checked.buffers.in_place || job_.size > 2);
}

// PlanOptions::message_bytes. Those of equally short messages share their
// plans.
std::uint32_t Planner::EagerLimit(const Operation& operation) const {
  const std::uint64_t bytes =
      operation.chunking.Chunk(0).count * SizeOf(operation.type);
  std::uint32_t limit = 0;
  if (operation.chunking.subchunks() == 1) {
    for (const Abilities& abilities : job_.abilities) {
      if (abilities.eager_bytes > 0 && bytes <= abilities.eager_bytes &&
          (limit == 0 || abilities.eager_bytes < limit)) {
        limit = abilities.eager_bytes;
      }
    }
  }
  return limit;
}

std::size_t Planner::WayOf(const CheckedCall& checked) {
  const auto& [call, buffers, accelerator] = checked;
  const std::size_t bytes = buffers.elements * SizeOf(call.type);
  const auto is_shared = [this](const void* begin, std::size_t size) {
    return InRegion(begin, size);
  };
  const auto is_copied = [](const void* begin, std::size_t size) {
    return KernelCopies({static_cast<const std::byte*>(begin), size});
  };
  trial_ = nullptr;
  if (accelerator != job_.host || job_.region == nullptr ||
      bytes < (job_.crowded ? kPastCachesBytes : kReachedBytes) ||
      AllBuffers(checked, is_shared)) {
    return kBySlots;
  }
  const bool by_kernel = job_.reaches_private && bytes >= kReachedBytes &&
                         AllBuffers(checked, is_copied);
  if (by_kernel && job_.always_reaches_private) {
    return kByKernel;
  }
  const std::size_t ways = by_kernel ? kByKernel + 1 : kPastCaches + 1;
  const std::tuple key(call.collective, buffers.in_place,
                       static_cast<int>(std::bit_width(bytes)), ways);
  trial_ = &trials_.try_emplace(key, ways).first->second;
  trial_bytes_ = bytes;
  return trial_->Next();
}

void Planner::Ran(std::chrono::nanoseconds time) {
  if (trial_ != nullptr) {
    trial_->Took(way_, time, trial_bytes_);
  }
}

bool Planner::InRegion(const void* begin, std::size_t bytes) const {
  return job_.region != nullptr &&
         job_.region->OffsetOf(begin, bytes).has_value();
}

Result<UserBuffer> Planner::FindMemory(std::uintptr_t base, const void* begin,
                                       std::size_t bytes, bool written,
                                       Registration* temporary) {
  UserBuffer buffer;
  buffer.base = base;
  if (bytes == 0) {
    return buffer;
  }
  buffer.shared = InRegion(begin, bytes);
  if (!buffer.shared && way_ == kByKernel && bytes >= kReachedBytes) {
    buffer.shared = true;
    buffer.reached = {static_cast<const std::byte*>(begin), bytes};
  }
  if (const auto found =
          job_.rails.empty() ? std::nullopt : job_.memory->Find(begin, bytes)) {
    buffer.registered = found->writable || !written;
    buffer.lkeys = found->lkeys;
  } else if (temporary != nullptr && job_.registers_for_nothing &&
             bytes >= kTemporaryRegistrationBytes) {
    auto registered =
        Registration::Create(job_.rails, begin, bytes, 0, /*relaxed=*/true);
    if (registered.ok()) {
      *temporary = std::move(registered).value();
      buffer.registered = true;
      buffer.lkeys = temporary->lkeys();
    } else if (registered.status().code() != StatusCode::kResourceExhausted) {
      return registered.status();
    }  // else it is copied
  }
  return buffer;
}

Result<const Plan*> Planner::FindPlan(const AlgorithmInfo& algorithm, int root,
                                      PlanOptions options) {
  options.direct_over_sent = algorithm.direct_over_sent;
  options.same_to_all = algorithm.same_to_all;
  options.abilities = job_.abilities;
  const PlanKey key(
      &algorithm, root, options.in_place, options.input_registered,
      options.output_registered, options.input_shared, options.output_shared,
      options.register_sends, options.on_host, options.message_bytes);
  const auto found = plans_.find(key);
  if (found != plans_.end()) {
    return &found->second;
  }
  RINGPIPE_ASSIGN_OR_RETURN(
      Plan plan, Compile(algorithm.algorithm(job_.rank, job_.size, root),
                         job_.rank, job_.size, options));
  return &plans_.emplace(key, std::move(plan)).first->second;
}

}  // namespace ringpipe
