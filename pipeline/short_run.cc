#include "pipeline/short_run.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "reduction/host_copy.h"

namespace ringpipe {

using Kind = Transfer::Kind;

namespace {

using Location = ShortStep::Location;

Location InMemory(const Operation& operation, Place place) {
  return {
      .in_output = place.buffer == Place::Buffer::kOutput,
      .offset = operation.chunking.Range(place.chunk, place.count, 0)[0].begin *
                SizeOf(operation.type)};
}

// There is at most one piece.
Location LocationOf(const Operation& operation,
                    const std::vector<Step::Piece>& pieces) {
  if (pieces.empty()) {
    return {};
  }
  const Step::Piece& piece = pieces.front();
  return piece.step < 0 ? InMemory(operation, piece.place)
                        : Location{.holder = piece.step,
                                   .offset = operation.OffsetOf(piece, 0)};
}

}  // namespace

void ShortRun::Measure(Operation& operation) {
  operation.short_steps.clear();
  const Plan& plan = *operation.plan;
  if (!plan.all_eager || plan.most_pieces != 1 ||
      operation.chunking.subchunks() != 1) {
    return;
  }
  for (const Step& step : plan.steps) {
    const Place moved = step.transfer.chunks();
    operation.short_steps.push_back(
        {operation.BytesOf(moved, 0), LocationOf(operation, step.source),
         LocationOf(operation, step.operand),
         step.to_memory ? InMemory(operation, step.transfer.target)
                        : Location()});
  }
}

void ShortRun::Prepare() {
  const std::vector<ShortStep>& steps = state_.operation->short_steps;
  if (values_.size() < steps.size()) {
    values_.resize(steps.size());
  }
  std::fill_n(values_.begin(), steps.size(), Value());
  std::uint32_t most = 0;
  for (const ShortStep& step : steps) {
    most = std::max(most, step.bytes);
  }
  room_bytes_ = (most + 63) / 64 * 64;
  if (room_.size() < steps.size() * room_bytes_) {
    room_.resize(steps.size() * room_bytes_);
  }
}

Status ShortRun::Run(Connection::Events& events, Driver& driver) {
  Prepare();
  const std::size_t steps = state_.operation->short_steps.size();
  for (std::uint32_t index = 0; index < steps; ++index) {
    const Transfer& transfer = step(index).transfer;
    current_ = &transfer;
    if (transfer.kind == Kind::kSend) {
      RINGPIPE_RETURN_IF_ERROR(Send(index, driver));
      continue;
    }
    if (transfer.receives()) {
      RINGPIPE_RETURN_IF_ERROR(Receive(index, events, driver));
    }
    Finish(index);
    if (step(index).arrival == Step::Arrival::kAtPeer) {
      RINGPIPE_RETURN_IF_ERROR(
          state_.transports.connection(transfer.peer)->Release({0, index}));
    }
  }
  current_ = nullptr;
  return Status::Ok();
}

Status ShortRun::Send(std::uint32_t index, Driver& driver) {
  Connection& connection =
      *state_.transports.connection(step(index).transfer.peer);
  for (;;) {
    RINGPIPE_ASSIGN_OR_RETURN(const bool can, connection.CanSend());
    if (can) {
      break;
    }
    RINGPIPE_RETURN_IF_ERROR(driver.LetHappen());
  }
  const Memory source = {At(measured(index).source), measured(index).bytes};
  meters_.send.Add(source.bytes, {});
  if (state_.trace == nullptr) {
    return connection.Send({0, index}, source).status();
  }
  state_.trace->MessageBegins(TraceTrack::kSend, index, connection.peer());
  Status sent = connection.Send({0, index}, source).status();
  state_.trace->MessageEnds(TraceTrack::kSend, index, PartOf(index));
  return sent;
}

Status ShortRun::Receive(std::uint32_t index, Connection::Events& events,
                         Driver& driver) {
  Connection& connection =
      *state_.transports.connection(step(index).transfer.peer);
  const bool stays = step(index).arrival == Step::Arrival::kAtPeer;
  if (state_.trace != nullptr) {
    state_.trace->MessageBegins(TraceTrack::kReceive, index, connection.peer());
  }
  connection.Expect(
      {0, index},
      stays ? Memory() : Memory{Room(index), measured(index).bytes});
  RINGPIPE_RETURN_IF_ERROR(connection.Progress(events).status());
  while (!values_[index].there) {
    RINGPIPE_RETURN_IF_ERROR(driver.LetHappen());
    // It may have come early, or with the last look before sleeping.
    RINGPIPE_ASSIGN_OR_RETURN(const bool pushed, connection.Progress(events));
    if (pushed) {
      driver.Happened();
    }
  }
  return CheckLength(index);
}

Status ShortRun::CheckLength(std::uint32_t index) const {
  const std::uint32_t expected = measured(index).bytes;
  if (values_[index].bytes == expected) {
    return Status::Ok();
  }
  return WrongLength(step(index).transfer.peer, values_[index].bytes, expected);
}

std::byte* ShortRun::TargetOf(std::uint32_t index) {
  return step(index).to_memory ? At(measured(index).target) : Room(index);
}

void ShortRun::Finish(std::uint32_t index) {
  const bool reduces = step(index).transfer.reduces();
  if (state_.trace == nullptr) {
    return reduces ? Reduce(index) : Copy(index);
  }
  const Clock::time_point begin = Clock::now();
  reduces ? Reduce(index) : Copy(index);
  state_.trace->Work(reduces ? TraceTrack::kReduce : TraceTrack::kCopyOut,
                     PartOf(index), begin, Clock::now());
}

void ShortRun::Reduce(std::uint32_t index) {
  const Operation& operation = *state_.operation;
  const Transfer& transfer = step(index).transfer;
  const std::uint32_t bytes = measured(index).bytes;
  const void* first = At(measured(index).source);
  const void* second =
      transfer.receives() ? values_[index].data : At(measured(index).operand);
  if (step(index).received_first) {
    std::swap(first, second);
  }
  std::byte* const target = TargetOf(index);
  state_.operation->host->Reduce(
      operation.type, operation.op, target, first, std::span(&second, 1),
      bytes / SizeOf(operation.type),
      state_.ScalingOf(step(index), /*own_unscaled=*/false,
                       /*received_unscaled=*/false));
  meters_.reduce.Add(bytes, {});
  values_[index] = {target, bytes, true};
}

void ShortRun::Copy(std::uint32_t index) {
  const std::uint32_t bytes = measured(index).bytes;
  const std::byte* const source = step(index).transfer.receives()
                                      ? values_[index].data
                                      : At(measured(index).source);
  std::byte* const target = TargetOf(index);
  if (source != target) {
    HostCopy(target, source, bytes);
  }
  meters_.copy_out.Add(bytes, {});
  values_[index] = {target, bytes, true};
}

}  // namespace ringpipe
