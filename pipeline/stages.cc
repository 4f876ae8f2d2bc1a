#include "pipeline/stages.h"

#include <algorithm>
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
  const Transfer& transfer = state.flow.step(instance).transfer;
  if (!transfer.receives() || state.flow.IsNoMessage(instance) ||
      !state.received[state.Index(instance)].lent) {
    return Status::Ok();
  }
  return state.transports.connection(transfer.peer)->Release(instance);
}

// What is left of pieces that are read or written one after the other.
class Cursor {
 public:
  explicit Cursor(Pieces pieces) : pieces_(pieces) { Skip(); }

  // How much of it lies together.
  std::uint32_t together() const {
    return pieces_.empty() ? 0 : pieces_[0].bytes - taken_;
  }
  // At most that.
  Memory Take(std::uint32_t bytes) {
    if (pieces_.empty()) {
      return {};
    }
    Memory taken = pieces_[0];
    taken.data += taken_;
    taken.bytes = bytes;
    taken.handle = nullptr;
    taken_ += bytes;
    Skip();
    return taken;
  }

 private:
  void Skip() {
    while (!pieces_.empty() && taken_ == pieces_[0].bytes) {
      pieces_ = pieces_.subspan(1);
      taken_ = 0;
    }
  }

  std::span<const Memory> pieces_;
  std::uint32_t taken_ = 0;  // of the first
};

// What is done when both are: of what one accelerator was given, the later one.
Accelerator::Ticket Later(Accelerator::Ticket one, Accelerator::Ticket other) {
  return other.sequence == 0 ? one : other;
}

// copy(target, source) for all that lies together on both sides, at least once;
// returns what is done when all are.
template <typename Copy>
Accelerator::Ticket CopyPieces(Pieces targets, Pieces sources, Copy copy) {
  Cursor target(targets);
  Cursor source(sources);
  Accelerator::Ticket ticket;
  do {
    const std::uint32_t bytes = std::min(target.together(), source.together());
    ticket = Later(ticket, copy(target.Take(bytes), source.Take(bytes)));
  } while (target.together() > 0);
  return ticket;
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
    happened = true;
    if (started.ticket.sequence == 0) {
      Note(started);
      RINGPIPE_RETURN_IF_ERROR(finish(instance));
    } else {
      started_.push(started);
    }
  }
  while (!started_.empty()) {
    RINGPIPE_ASSIGN_OR_RETURN(const bool ended, Ended(started_.front().ticket));
    if (!ended) {
      break;
    }
    const Started done = started_.pop();
    Note(done);
    RINGPIPE_RETURN_IF_ERROR(finish(done.instance));
    happened = true;
  }
  return happened;
}

void AcceleratorStage::Note(const Started& done) {
  const Clock::time_point now = Clock::now();
  meter_.Add(done.bytes, now - done.since);
  if (state_.trace != nullptr) {
    state_.trace->Work(meter_.stage(), state_.PartOf(done.instance, done.bytes),
                       done.since, now);
  }
}

Result<bool> AcceleratorStage::Ended(Accelerator::Ticket ticket) {
  Accelerator& device = *state_.operation->device;
  const Accelerator::Progress progress = device.Poll(ticket);
  if (progress == Accelerator::Progress::kFailed) {
    return device.error();
  }
  return progress == Accelerator::Progress::kDone;
}

// target = source, which is input that is not scaled yet.
Accelerator::Ticket AcceleratorStage::Scale(Accelerator::Lane lane,
                                            const Memory& target,
                                            const Memory& source) {
  const Operation& operation = *state_.operation;
  return state_.AcceleratorOf(source).Scale(
      lane, operation.type, target.data, source.data,
      source.bytes / SizeOf(operation.type), operation.prescale);
}

Result<bool> CopyInStage::Advance() {
  return AcceleratorStage::Advance(
      state_.flow.to_copy_in(),
      [this](Instance instance) -> Result<Started> {
        const Memory target = state_.InSlot(instance);
        const Memory received = state_.ReceivedFor(instance);
        const auto copy = [this](const Memory& to, const Memory& from) {
          return from.unscaled ? Scale(Accelerator::Lane::kCopyIn, to, from)
                               : state_.AcceleratorOf(from).CopyIn(
                                     to.data, from.data, from.bytes);
        };
        return Started{CopyPieces(target,
                                  state_.flow.step(instance).transfer.receives()
                                      ? Pieces(received)
                                      : Pieces(state_.SourceOf(instance)),
                                  copy),
                       target.bytes};
      },
      [this](Instance instance) {
        Status released = ReleaseReceived(state_, instance);
        state_.flow.CopiedIn(instance);
        return released;
      });
}

Result<bool> CopyOutStage::Advance() {
  return AcceleratorStage::Advance(
      state_.flow.to_copy_out(),
      [this](Instance instance) -> Result<Started> {
        const Step& step = state_.flow.step(instance);
        const bool copies =
            step.transfer.kind == Kind::kLocalCopy && step.in_memory;
        const Memory value = copies           ? Memory()
                             : step.in_memory ? state_.ReceivedFor(instance)
                                              : state_.InSlot(instance);
        const auto copy = [&](const Memory& to, const Memory& from) {
          Accelerator& accelerator = state_.AcceleratorOf(to);
          return from.unscaled ? Scale(Accelerator::Lane::kCopyOut, to, from)
                 : copies && !state_.pool->Holds(from.data)
                     ? accelerator.CopyWithin(to.data, from.data, from.bytes)
                 : state_.operation->copies_out_non_temporal
                     ? accelerator.CopyOutNonTemporal(to.data, from.data,
                                                      from.bytes)
                     : accelerator.CopyOut(to.data, from.data, from.bytes);
        };
        return Started{
            CopyPieces(
                state_.InMemory(step.transfer.target, instance),
                copies ? Pieces(state_.SourceOf(instance)) : Pieces(value),
                copy),
            state_.BytesOf(step.transfer.target, instance)};
      },
      [this](Instance instance) {
        Status released = state_.flow.step(instance).in_memory
                              ? ReleaseReceived(state_, instance)
                              : Status::Ok();
        state_.flow.CopiedOut(instance);
        return released;
      });
}

Result<bool> ReduceStage::Advance() {
  return AcceleratorStage::Advance(
      state_.flow.to_reduce(),
      [this](Instance instance) { return Start(instance); },
      [this](Instance instance) { return Finish(instance); });
}

// Each of what is reduced may lie in pieces of its own.
Result<AcceleratorStage::Started> ReduceStage::Start(Instance instance) {
  const Operation& operation = *state_.operation;
  std::array<Memory, Accelerator::kMostSources> received;
  std::size_t count = 0;
  Instance last = instance;
  for (std::optional<Instance> next = instance; next.has_value();
       next = count < received.size() ? state_.flow.JoinNext(last)
                                      : std::nullopt) {
    last = *next;
    received[count++] = state_.ReceivedFor(last);
  }
  const Step& step = state_.flow.step(last);
  const Step& first_step = state_.flow.step(instance);
  const bool exchanged = first_step.received_first;
  const bool local = !first_step.transfer.receives();
  const Memory slot = step.in_memory ? Memory() : state_.InSlot(last);
  Cursor target(step.in_memory
                    ? Pieces(state_.InMemory(step.transfer.target, last))
                    : Pieces(slot));
  Cursor copy(step.in_both ? Pieces(state_.InMemory(step.transfer.target, last))
                           : Pieces(std::span<const Memory>()));
  Cursor own(state_.SourceOf(instance));
  Cursor operand(local ? state_.OperandOf(instance)
                       : std::span(received).first(1));
  Accelerator::Ticket ticket;
  std::uint32_t done = 0;
  do {
    std::uint32_t bytes =
        std::min({target.together(), own.together(), operand.together()});
    bytes = step.in_both ? std::min(bytes, copy.together()) : bytes;
    Memory first = own.Take(bytes);
    Memory second = operand.Take(bytes);
    if (exchanged) {
      std::swap(first, second);
    }
    std::array<const void*, Accelerator::kMostSources> sources = {second.data};
    for (std::size_t i = 1; i < count; ++i) {
      sources[i] = received[i].data + done;
    }
    const bool on_device = first_step.reducer == Owner::kBoth
                               ? first.on_device || second.on_device
                               : first_step.reducer == Owner::kDevice;
    ticket = Later(
        ticket,
        state_.AcceleratorOf(on_device).Reduce(
            operation.type, operation.op,
            {target.Take(bytes).data, copy.Take(bytes).data}, first.data,
            std::span(sources).first(count), bytes / SizeOf(operation.type),
            state_.ScalingOf(step, first.unscaled, second.unscaled)));
    done += bytes;
  } while (target.together() > 0);
  return Started{ticket, std::uint64_t{done} * count};
}

Status ReduceStage::Finish(Instance instance) {
  Status status;
  std::optional<Instance> next = instance;
  while (next.has_value()) {
    const Instance done = *next;
    next = state_.flow.Joined(done);
    const Status released = ReleaseReceived(state_, done);
    status = status.ok() ? released : status;
    state_.flow.Reduced(done);
  }
  return status;
}

// --- Registration ------------------------------------------------------------

void RegisterStage::Begin() {
  if (handles_.size() < state_.instances()) {
    handles_.resize(state_.instances());
  }
}

Result<bool> RegisterStage::Advance() {
  if (state_.flow.to_register().empty()) {
    return false;
  }
  const Instance instance = state_.flow.to_register().pop();
  const Memory source = state_.SourceOf(instance)[0];
  const Clock::time_point start = Clock::now();
  if (source.bytes > 0) {
    RINGPIPE_ASSIGN_OR_RETURN(handles_[state_.Index(instance)],
                              TransportOf(instance).Register(source));
  }
  const Clock::time_point now = Clock::now();
  meter_.Add(source.bytes, now - start);
  if (state_.trace != nullptr) {
    state_.trace->Work(meter_.stage(), state_.PartOf(instance, source.bytes),
                       start, now);
  }
  state_.flow.Registered(instance);
  return true;
}

Status RegisterStage::Release(Instance instance) {
  const Clock::time_point start = Clock::now();
  MemoryHandle& handle = handles_[state_.Index(instance)];
  Status status = handle == nullptr ? Status::Ok()
                                    : TransportOf(instance).Deregister(handle);
  handle = nullptr;
  meter_.Busy(Clock::now() - start);
  return status;
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
      RINGPIPE_RETURN_IF_ERROR(connection->Progress(events).status());
      const Clock::time_point now = Clock::now();
      meter_.Busy(now - start);
      if (state_.trace != nullptr) {
        state_.trace->InTransport(start, now);
      }
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
    const bool has_slot = state_.flow.slot(instance) != SlotList::kNone;
    Memory whole = has_slot ? state_.InSlot(instance) : Memory();
    std::span<const Memory> source = std::span(&whole, 1);
    if (!has_slot) {
      source = state_.SourceOf(instance);
    }
    if (state_.flow.step(instance).registers) {
      whole = source[0];
      whole.handle = register_.handle(instance);
      source = std::span(&whole, 1);
    }
    state_.flow.PopSend(peer);
    if (state_.trace != nullptr) {
      state_.trace->MessageBegins(meter_.stage(), state_.Index(instance), peer);
    }
    RINGPIPE_ASSIGN_OR_RETURN(const bool free,
                              connection.Send(instance, source));
    std::uint64_t bytes = 0;
    for (const Memory& piece : source) {
      bytes += piece.bytes;
    }
    meter_.Add(bytes, Clock::duration::zero());
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
  if (state_.trace != nullptr) {
    const Place sent = state_.flow.step(instance).transfer.chunks();
    state_.trace->MessageEnds(
        meter_.stage(), state_.Index(instance),
        state_.PartOf(instance, state_.BytesOf(sent, instance)));
  }
  state_.flow.Sent(instance);
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
      if (state_.trace != nullptr) {
        state_.trace->MessageBegins(meter_.stage(), state_.Index(*next), peer);
      }
      connection->Expect(*next, state_.TargetOf(*next));
      state_.flow.PopReceive(peer);
    }
    RINGPIPE_ASSIGN_OR_RETURN(const bool pushed, connection->Progress(events));
    happened |= pushed;
  }
  if (start != Clock::time_point()) {
    const Clock::time_point now = Clock::now();
    meter_.Busy(now - start);
    if (state_.trace != nullptr) {
      state_.trace->InTransport(start, now);
    }
  }
  return happened;
}

Status ReceiveStage::CheckLength(Instance instance, std::uint32_t bytes) const {
  const Transfer& transfer = state_.flow.step(instance).transfer;
  const std::uint32_t expected = state_.BytesOf(transfer.target, instance);
  return bytes == expected ? Status::Ok()
                           : WrongLength(transfer.peer, bytes, expected);
}

// The peer says where it is: at an address that is no element's, an access
// would end the context of the device.
bool ReceiveStage::DeviceCanRead(const std::byte* data,
                                 std::uint32_t bytes) const {
  const Operation& operation = *state_.operation;
  return operation.device->IsSlot(data, bytes) &&
         reinterpret_cast<std::uintptr_t>(data) % SizeOf(operation.type) == 0;
}

// What lies at the peer comes into the slot.
Status ReceiveStage::Fetch(Instance instance,
                           PipelineState::Received& received) {
  std::byte* const slot = state_.pool->data(state_.flow.slot(instance));
  state_.operation->host->CopyIn(slot, received.data, received.bytes);
  received = {slot, received.bytes, /*lent=*/false};
  return state_.transports.connection(state_.flow.step(instance).transfer.peer)
      ->Release(instance);
}

Status ReceiveStage::Arrived(Instance instance, const std::byte* data,
                             std::uint32_t bytes) {
  RINGPIPE_RETURN_IF_ERROR(CheckLength(instance, bytes));
  const Step& step = state_.flow.step(instance);
  PipelineState::Received& received = state_.received[state_.Index(instance)];
  received = {data, bytes, step.arrival == Arrival::kAtPeer};
  if (step.device_reads && !DeviceCanRead(data, bytes)) {
    RINGPIPE_RETURN_IF_ERROR(Fetch(instance, received));
  }
  meter_.Add(bytes, Clock::duration::zero());
  if (state_.trace != nullptr) {
    state_.trace->MessageEnds(meter_.stage(), state_.Index(instance),
                              state_.PartOf(instance, bytes));
  }
  state_.flow.Received(instance);
  return Status::Ok();
}

}  // namespace ringpipe
