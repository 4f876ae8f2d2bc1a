#include "pipeline/short_run.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>

namespace ringpipe {

using Kind = Transfer::Kind;

bool ShortRun::Takes(const Operation& operation) {
  // Chunks of one length, of which each value is one.
  const Chunking& chunking = operation.chunking;
  return operation.plan->all_eager && chunking.subchunks() == 1 &&
         chunking.Chunk(0).count ==
             chunking.Chunk(operation.plan->chunks - 1).count;
}

void ShortRun::Prepare() {
  const Operation& operation = *state_.operation;
  const std::size_t steps = operation.plan->steps.size();
  bytes_ = static_cast<std::uint32_t>(operation.chunking.Subchunk(0, 0).count *
                                      SizeOf(operation.type));
  room_bytes_ = (bytes_ + 63) / 64 * 64;
  if (values_.size() < steps) {
    values_.resize(steps);
  }
  std::fill_n(values_.begin(), steps, Value());
  if (room_.size() < steps * room_bytes_) {
    room_.resize(steps * room_bytes_);
  }
}

Status ShortRun::Run(Connection::Events& events, Driver& driver) {
  Prepare();
  const std::size_t steps = state_.operation->plan->steps.size();
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
    transfer.reduces() ? Reduce(index) : Copy(index);
    if (step(index).arrival == Step::Arrival::kAtPeer) {
      RINGPIPE_RETURN_IF_ERROR(
          state_.connections[transfer.peer]->Release({0, index}));
    }
  }
  current_ = nullptr;
  return Status::Ok();
}

// In a slot of a step before, or in user memory.
Memory ShortRun::ValueOf(int holder, Place place) const {
  if (holder < 0) {
    return state_.InMemory(place, 0);
  }
  return {const_cast<std::byte*>(values_[holder].data), values_[holder].bytes,
          nullptr};
}

Status ShortRun::Send(std::uint32_t index, Driver& driver) {
  Connection& connection = *state_.connections[step(index).transfer.peer];
  for (;;) {
    RINGPIPE_ASSIGN_OR_RETURN(const bool can, connection.CanSend());
    if (can) {
      break;
    }
    RINGPIPE_RETURN_IF_ERROR(driver.LetHappen());
  }
  meters_.send.Add(bytes_, {});
  return connection
      .Send({0, index},
            ValueOf(step(index).source_step, step(index).transfer.source))
      .status();
}

Status ShortRun::Receive(std::uint32_t index, Connection::Events& events,
                         Driver& driver) {
  Connection& connection = *state_.connections[step(index).transfer.peer];
  const bool stays = step(index).arrival == Step::Arrival::kAtPeer;
  connection.Expect({0, index},
                    stays ? Memory() : Memory{Room(index), bytes_, nullptr});
  RINGPIPE_RETURN_IF_ERROR(connection.Push(events).status());
  while (!values_[index].there) {
    RINGPIPE_RETURN_IF_ERROR(driver.LetHappen());
    // It may have come early, or with the last look before sleeping.
    RINGPIPE_ASSIGN_OR_RETURN(const bool pushed, connection.Push(events));
    if (pushed) {
      driver.Happened();
    }
  }
  return CheckLength(index);
}

Status ShortRun::CheckLength(std::uint32_t index) const {
  if (values_[index].bytes == bytes_) {
    return Status::Ok();
  }
  return {StatusCode::kInternal,
          "rank " + std::to_string(step(index).transfer.peer) + " sent " +
              std::to_string(values_[index].bytes) +
              " bytes where the schedule has " + std::to_string(bytes_)};
}

std::byte* ShortRun::TargetOf(std::uint32_t index) {
  return step(index).to_memory
             ? state_.InMemory(step(index).transfer.target, 0).data
             : Room(index);
}

void ShortRun::Reduce(std::uint32_t index) {
  const Operation& operation = *state_.operation;
  const Transfer& transfer = step(index).transfer;
  const void* first = ValueOf(step(index).source_step, transfer.source).data;
  const void* second =
      transfer.receives()
          ? values_[index].data
          : ValueOf(step(index).operand_step, transfer.operand).data;
  if (step(index).received_first) {
    std::swap(first, second);
  }
  std::byte* const target = TargetOf(index);
  state_.accelerator().Reduce(
      operation.type, operation.op, target, first, std::span(&second, 1),
      bytes_ / SizeOf(operation.type), transfer.finish ? state_.size : 0);
  meters_.reduce.Add(bytes_, {});
  values_[index] = {target, bytes_, true};
}

void ShortRun::Copy(std::uint32_t index) {
  const Transfer& transfer = step(index).transfer;
  const std::byte* const source =
      transfer.receives()
          ? values_[index].data
          : ValueOf(step(index).source_step, transfer.source).data;
  std::byte* const target = TargetOf(index);
  if (bytes_ > 0 && source != target) {
    std::memcpy(target, source, bytes_);
  }
  meters_.copy_out.Add(bytes_, {});
  values_[index] = {target, bytes_, true};
}

}  // namespace ringpipe
