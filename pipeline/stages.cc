#include "pipeline/stages.h"

#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace ringpipe {
namespace {

using Kind = Transfer::Kind;
using Arrival = Step::Arrival;

// The message for `instance` has been read; the peer gets back what lay there.
Status ReleaseReceived(PipelineState& state, Instance instance) {
  const Step& step = state.flow.step(instance);
  if (!step.transfer.receives() || step.arrival != Arrival::kAtPeer) {
    return Status::Ok();
  }
  return state.connections[step.transfer.peer]->Release(instance);
}

Status WrongLength(int peer, std::uint64_t sent, std::uint64_t expected) {
  return {StatusCode::kInternal,
          "rank " + std::to_string(peer) + " sent " + std::to_string(sent) +
              " bytes where the schedule has " + std::to_string(expected)};
}

}  // namespace

// --- Work of the accelerator -------------------------------------------------

template <typename Start, typename Finish>
Result<bool> AcceleratorStage::Advance(Fifo<Instance>& ready, Start start,
                                       Finish finish) {
  bool happened = false;
  if (!ready.empty()) {
    const Clock::time_point now = Clock::now();
    const Instance instance = ready.pop();
    RINGPIPE_ASSIGN_OR_RETURN(Started started, start(instance));
    started.instance = instance;
    started.since = now;
    started_.push(started);
    happened = true;
  }
  while (!started_.empty()) {
    const Accelerator::Progress progress =
        state_.accelerator().Poll(started_.front().ticket);
    if (progress == Accelerator::Progress::kFailed) {
      return state_.accelerator().error();
    }
    if (progress == Accelerator::Progress::kPending) {
      break;
    }
    const Started done = started_.pop();
    meter_.Add(done.bytes, Clock::now() - done.since);
    RINGPIPE_RETURN_IF_ERROR(finish(done.instance));
    happened = true;
  }
  return happened;
}

Result<bool> CopyInStage::Advance() {
  return AcceleratorStage::Advance(
      state_.flow.to_copy_in(),
      [this](Instance instance) -> Result<Started> {
        const int slot = state_.flow.slot(instance);
        PipelineState::Received source =
            state_.received[state_.Index(instance)];
        if (!state_.flow.step(instance).transfer.receives()) {
          const Memory own = state_.SourceOf(instance);
          source = {own.data, own.bytes};
        }
        state_.slot_bytes[slot] = source.bytes;
        Accelerator& accelerator = state_.accelerator();
        std::byte* const target = state_.pool->data(slot);
        return Started{
            state_.operation->streams_in
                ? accelerator.StreamIn(target, source.data, source.bytes)
                : accelerator.CopyIn(target, source.data, source.bytes),
            source.bytes};
      },
      [this](Instance instance) {
        Status released = ReleaseReceived(state_, instance);
        state_.flow.CopiedIn(instance, state_.slots());
        return released;
      });
}

Result<bool> CopyOutStage::Advance() {
  return AcceleratorStage::Advance(
      state_.flow.to_copy_out(),
      [this](Instance instance) -> Result<Started> {
        const Step& step = state_.flow.step(instance);
        const Memory target = state_.InMemory(step.transfer.target, instance);
        const bool copies = step.transfer.kind == Kind::kLocalCopy;
        const std::byte* const source =
            copies           ? state_.SourceOf(instance).data
            : step.in_memory ? state_.received[state_.Index(instance)].data
                             : state_.pool->data(state_.flow.slot(instance));
        const bool within =
            copies && state_.flow.source_slot(instance) == SlotList::kNone;
        Accelerator& accelerator = state_.accelerator();
        return Started{
            within ? accelerator.CopyWithin(target.data, source, target.bytes)
            : state_.operation->streams_out
                ? accelerator.StreamOut(target.data, source, target.bytes)
                : accelerator.CopyOut(target.data, source, target.bytes),
            target.bytes};
      },
      [this](Instance instance) {
        Status released = state_.flow.step(instance).in_memory
                              ? ReleaseReceived(state_, instance)
                              : Status::Ok();
        state_.flow.CopiedOut(instance, state_.slots());
        return released;
      });
}

Result<bool> ReduceStage::Advance() {
  return AcceleratorStage::Advance(
      state_.flow.to_reduce(),
      [this](Instance instance) { return Start(instance); },
      [this](Instance instance) { return Finish(instance); });
}

Result<AcceleratorStage::Started> ReduceStage::Start(Instance instance) {
  const Operation& operation = *state_.operation;
  const Memory own = state_.SourceOf(instance);
  std::array<const void*, Accelerator::kMostSources> received = {};
  std::size_t count = 0;
  Instance last = instance;
  for (std::optional<Instance> next = instance; next.has_value();
       next = count < received.size() ? state_.flow.JoinNext(last)
                                      : std::nullopt) {
    last = *next;
    PipelineState::Received message = state_.received[state_.Index(last)];
    if (!state_.flow.step(last).transfer.receives()) {
      const Memory operand = state_.OperandOf(last);
      message = {operand.data, operand.bytes};
    }
    if (message.bytes != own.bytes) {
      return WrongLength(state_.flow.step(last).transfer.peer, message.bytes,
                         own.bytes);
    }
    received[count++] = message.data;
  }
  const Step& step = state_.flow.step(last);
  std::byte* target = nullptr;
  if (step.in_memory) {
    target = state_.InMemory(step.transfer.target, last).data;
  } else {
    const int slot = state_.flow.slot(last);
    state_.slot_bytes[slot] = own.bytes;
    target = state_.pool->data(slot);
  }
  const void* first = own.data;
  if (state_.flow.step(instance).received_first) {
    std::swap(first, received[0]);
  }
  return Started{
      state_.accelerator().Reduce(operation.type, operation.op, target, first,
                                  std::span(received).first(count),
                                  own.bytes / SizeOf(operation.type),
                                  step.transfer.finish ? state_.size : 0),
      own.bytes * count};
}

Status ReduceStage::Finish(Instance instance) {
  Status status;
  std::optional<Instance> next = instance;
  while (next.has_value()) {
    const Instance done = *next;
    next = state_.flow.Joined(done);
    const Status released = ReleaseReceived(state_, done);
    status = status.ok() ? released : status;
    state_.flow.Reduced(done, state_.slots());
  }
  return status;
}

// --- Registration ------------------------------------------------------------

void RegisterStage::Begin() {
  if (registrations_.size() < state_.instances()) {
    registrations_.resize(state_.instances());
  }
}

Result<bool> RegisterStage::Advance() {
  if (state_.flow.to_register().empty()) {
    return false;
  }
  const Instance instance = state_.flow.to_register().pop();
  const Memory source = state_.SourceOf(instance);
  const Clock::time_point start = Clock::now();
  if (source.bytes > 0) {
    RINGPIPE_ASSIGN_OR_RETURN(
        registrations_[state_.Index(instance)],
        Registration::Create(state_.rails, source.data, source.bytes, 0,
                             /*relaxed=*/true));
  }
  meter_.Add(source.bytes, Clock::now() - start);
  state_.flow.Registered(instance);
  return true;
}

Status RegisterStage::Release(Instance instance) {
  const Clock::time_point start = Clock::now();
  Status status = registrations_[state_.Index(instance)].Release();
  held_ |= !status.ok();
  meter_.Busy(Clock::now() - start);
  return status;
}

bool RegisterStage::ReleaseAll() {
  for (Registration& registration : registrations_) {
    held_ |= !registration.Release().ok();
  }
  return !held_;
}

// --- Messages ----------------------------------------------------------------

Result<bool> SendStage::Advance(Connection::Events& events) {
  bool happened = false;
  for (Connection* connection : state_.active) {
    if (state_.flow.NextSend(connection->peer()) == nullptr) {
      continue;
    }
    const Clock::time_point start = Clock::now();
    RINGPIPE_ASSIGN_OR_RETURN(const bool sent, SendTo(*connection));
    if (sent) {
      RINGPIPE_RETURN_IF_ERROR(connection->Push(events).status());
      meter_.Busy(Clock::now() - start);
      happened = true;
    }
  }
  return happened;
}

Result<bool> SendStage::SendTo(Connection& connection) {
  const int peer = connection.peer();
  bool sent = false;
  while (const Instance* next = state_.flow.NextSend(peer)) {
    RINGPIPE_ASSIGN_OR_RETURN(const bool room, connection.CanSend());
    if (!room) {
      break;
    }
    const Instance instance = *next;
    const int own = state_.flow.slot(instance);
    Memory source =
        own != SlotList::kNone ? state_.InSlot(own) : state_.SourceOf(instance);
    if (state_.flow.step(instance).registers) {
      source.lkeys = &register_.lkeys(instance);
    }
    state_.flow.PopSend(peer);
    RINGPIPE_ASSIGN_OR_RETURN(const bool free,
                              connection.Send(instance, source));
    meter_.Add(source.bytes, Clock::duration::zero());
    sent = true;
    if (free) {
      RINGPIPE_RETURN_IF_ERROR(Sent(instance));
    }
  }
  return sent;
}

Status SendStage::Sent(Instance instance) {
  if (state_.flow.step(instance).registers) {
    RINGPIPE_RETURN_IF_ERROR(register_.Release(instance));
  }
  state_.flow.Sent(instance, state_.slots());
  return Status::Ok();
}

Result<bool> ReceiveStage::Advance(Connection::Events& events) {
  bool happened = false;
  Clock::time_point start;
  for (Connection* connection : state_.active) {
    const int peer = connection->peer();
    while (const Instance* next = state_.flow.NextReceive(peer)) {
      if (!connection->CanExpect()) {
        break;
      }
      if (start == Clock::time_point()) {
        start = Clock::now();
      }
      connection->Expect(*next, state_.TargetOf(*next));
      state_.flow.PopReceive(peer);
    }
    RINGPIPE_ASSIGN_OR_RETURN(const bool pushed, connection->Push(events));
    happened |= pushed;
  }
  if (start != Clock::time_point()) {
    meter_.Busy(Clock::now() - start);
  }
  return happened;
}

Status ReceiveStage::CheckLength(Instance instance, std::uint32_t bytes) const {
  const Step& step = state_.flow.step(instance);
  std::uint64_t expected = bytes;
  if (step.transfer.kind == Kind::kReceiveReduce && step.source_step < 0) {
    expected = state_.InMemory(step.transfer.source, instance).bytes;
  } else if (step.to_memory) {
    expected = state_.InMemory(step.transfer.target, instance).bytes;
  }
  const bool fits = !step.takes_slot || bytes <= state_.pool->slot_bytes();
  if (bytes != expected || !fits ||
      bytes % SizeOf(state_.operation->type) != 0) {
    return WrongLength(step.transfer.peer, bytes, expected);
  }
  return Status::Ok();
}

Status ReceiveStage::Arrived(Instance instance, const std::byte* data,
                             std::uint32_t bytes) {
  RINGPIPE_RETURN_IF_ERROR(CheckLength(instance, bytes));
  const int slot = state_.flow.slot(instance);
  if (slot != SlotList::kNone) {
    state_.slot_bytes[slot] = bytes;
  }
  state_.received[state_.Index(instance)] = {data, bytes};
  meter_.Add(bytes, Clock::duration::zero());
  state_.flow.Received(instance, state_.slots());
  return Status::Ok();
}

}  // namespace ringpipe
