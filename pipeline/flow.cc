#include "pipeline/flow.h"

#include <algorithm>
#include <optional>

namespace ringpipe {

using Kind = Transfer::Kind;
using Arrival = Step::Arrival;

void Flow::Start(const Plan& plan, std::uint64_t subchunks, int depth, int size,
                 SlotList& slots, const SubchunksOfChunks& of_chunks) {
  plan_ = &plan;
  of_chunks_ = of_chunks;
  if (!of_chunks.inputs.empty()) {
    eager_.assign(size, false);
    for (const Plan::Peer& peer : plan.peers) {
      eager_[peer.rank] = peer.eager;
    }
  }
  slots_ = &slots;
  subchunks_ = subchunks;
  depth_ = depth;
  lanes_ = static_cast<int>(std::min<std::uint64_t>(
      2 * static_cast<std::uint64_t>(depth), subchunks));
  round_ = 0;
  next_step_ = 0;
  lane_in_round_ = 0;
  remaining_lanes_ = plan.steps.empty() ? 0 : subchunks;
  const std::size_t instances = lanes_ * plan.steps.size();
  if (cells_.size() < instances) {
    cells_.resize(instances);
  }
  lane_subchunk_.assign(lanes_, 0);
  lane_open_steps_.assign(lanes_, 0);
  for (Fifo<Instance>* fifo :
       {&to_register_, &to_copy_in_, &to_reduce_, &to_copy_out_}) {
    fifo->Reset(instances);
  }
  sends_.resize(size);
  receives_.resize(size);
  open_receives_.assign(size, 0);
  for (int peer = 0; peer < size; ++peer) {
    sends_[peer].Reset(0);
    receives_[peer].Reset(0);
  }
  for (const Step& step : plan.steps) {
    if (step.transfer.kind == Kind::kSend) {
      sends_[step.transfer.peer].AddRoom(lanes_);
    } else if (step.transfer.receives()) {
      receives_[step.transfer.peer].AddRoom(lanes_);
    }
  }
}

void Flow::OpenLane(std::uint32_t lane, std::uint64_t subchunk) {
  lane_open_steps_[lane] = plan_->steps.size();
  lane_subchunk_[lane] = subchunk;
  for (std::size_t i = 0; i < plan_->steps.size(); ++i) {
    const Step& step = plan_->steps[i];
    cells_[lane * plan_->steps.size() + i] = {
        .references =
            step.readers +
            (step.to_memory && !step.in_memory && !step.in_both ? 1 : 0),
        .read_waits = step.read_waits,
        .write_waits = step.write_waits};
  }
}

void Flow::Advance() {
  const std::uint64_t in_round =
      std::min<std::uint64_t>(depth_, subchunks_ - round_ * depth_);
  if (++lane_in_round_ < in_round) {
    return;
  }
  lane_in_round_ = 0;
  if (++next_step_ < plan_->steps.size()) {
    return;
  }
  next_step_ = 0;
  ++round_;
}

Flow::Issued Flow::Issue() {
  if (plan_->steps.empty() || next_subchunk() >= subchunks_) {
    return Issued::kNothing;
  }
  const Instance instance = next();
  if (next_step_ == 0 && lane_open_steps_[instance.lane] != 0) {
    return Issued::kWindow;
  }
  int slot = SlotList::kNone;
  if (plan_->steps[next_step_].takes_slot) {
    slot = slots_->Acquire();
    if (slot == SlotList::kNone) {
      return Issued::kNoSlot;
    }
  }
  if (next_step_ == 0) {
    OpenLane(instance.lane, next_subchunk());
  }
  cell(instance).slot = slot;
  cell(instance).issued = true;
  Queue(instance);
  Advance();
  return Issued::kIssued;
}

bool Flow::IsNoMessage(Instance instance) const {
  const Transfer& transfer = step(instance).transfer;
  if (of_chunks_.inputs.empty() || !transfer.has_peer() ||
      eager_[transfer.peer]) {
    return false;
  }
  const Place place = transfer.chunks();
  const auto& subchunks = place.buffer == Place::Buffer::kOutput
                              ? of_chunks_.outputs
                              : of_chunks_.inputs;
  for (int position = 0; position < place.count; ++position) {
    const int chunk = place.At(position, plan_->chunks).chunk % plan_->chunks;
    if (subchunk(instance) < subchunks[chunk]) {
      return false;
    }
  }
  return true;
}

void Flow::Queue(Instance instance) {
  const Transfer& transfer = step(instance).transfer;
  if (IsNoMessage(instance)) {
    if (transfer.receives()) {
      Arrive(instance);
    } else {
      MayRead(instance);
    }
    return;
  }
  if (transfer.receives()) {
    receives_[transfer.peer].push(instance);
    ++open_receives_[transfer.peer];
    return;
  }
  if (transfer.kind == Kind::kSend) {
    sends_[transfer.peer].push(instance);
  }
  MayRead(instance);
}

// The source may have become readable: starts what waited for it.
void Flow::MayRead(Instance instance) {
  Cell& state = cell(instance);
  if (!state.issued || state.read_waits > 0) {
    return;
  }
  const Step& at = step(instance);
  switch (at.transfer.kind) {
    case Kind::kSend:
      if (IsNoMessage(instance)) {
        Sent(instance);
      } else if (at.copies_in) {
        to_copy_in_.push(instance);
      } else if (at.registers) {
        to_register_.push(instance);
      } else {
        state.ready = true;
      }
      break;
    case Kind::kReceiveReduce:
    case Kind::kLocalReduce:
      MayReduce(instance);
      break;
    case Kind::kLocalCopy:
      if (at.takes_slot) {
        to_copy_in_.push(instance);
      } else {
        MayWrite(instance);
      }
      break;
    case Kind::kReceiveCopy:
      break;
  }
}

// Whether a reduction may write what it writes in user memory.
bool Flow::IsWritable(const Step& reduction, const Cell& state) {
  return state.write_waits == 0 || (!reduction.in_memory && !reduction.in_both);
}

// Both operands may be there, and the target writable.
void Flow::MayReduce(Instance instance) {
  const Cell& state = cell(instance);
  const Step& at = step(instance);
  const bool writable = IsWritable(at, state);
  const bool arrived = state.arrived || !at.transfer.receives();
  if (state.issued && arrived && state.read_waits == 0 && writable &&
      !state.joined) {
    to_reduce_.push(instance);
  }
}

std::optional<Instance> Flow::JoinNext(Instance instance) {
  const auto next = SoleReader(instance);
  if (!next.has_value() || step(instance).transfer.finish) {
    return std::nullopt;
  }
  const Step& then = step(*next);
  Cell& state = cell(*next);
  const bool ready =
      state.arrived && state.read_waits == 1 && IsWritable(then, state);
  if (then.transfer.kind != Kind::kReceiveReduce || then.received_first ||
      then.reducer != step(instance).reducer || !ready) {
    return std::nullopt;
  }
  state.joined = true;
  return next;
}

std::optional<Instance> Flow::Joined(Instance instance) const {
  const auto next = SoleReader(instance);
  return next.has_value() && cell(*next).joined ? next : std::nullopt;
}

// Of a value that goes nowhere else, and of which it reads all.
std::optional<Instance> Flow::SoleReader(Instance instance) const {
  const Step& at = step(instance);
  if (at.to_memory || at.on_value.size() != 1) {
    return std::nullopt;
  }
  const Instance reader = {instance.lane,
                           static_cast<std::uint32_t>(at.on_value[0].step)};
  return step(reader).holders.size() == 1 && step(reader).source.size() == 1 &&
                 step(reader).transfer.count() == at.transfer.count()
             ? std::optional(reader)
             : std::nullopt;
}

// The target in user memory may have become writable.
void Flow::MayWrite(Instance instance) {
  Cell& state = cell(instance);
  const Step& at = step(instance);
  if (!state.issued || state.write_waits > 0) {
    return;
  }
  if (at.in_both || (at.in_memory && at.transfer.reduces())) {
    MayReduce(instance);
  } else if (!at.in_memory) {
    if (at.to_memory && state.ready) {
      to_copy_out_.push(instance);
    }
  } else if (at.transfer.kind == Kind::kLocalCopy) {
    if (state.read_waits == 0) {
      to_copy_out_.push(instance);
    }
  } else if (at.arrival == Arrival::kAtPeer && state.arrived) {
    to_copy_out_.push(instance);
  }
}

// The value in the instance's slot is complete.
void Flow::Complete(Instance instance) {
  Cell& state = cell(instance);
  const Step& at = step(instance);
  state.ready = true;
  for (const Step::Dependent& dependent : at.on_value) {
    const Instance other = {instance.lane,
                            static_cast<std::uint32_t>(dependent.step)};
    --cell(other).read_waits;
    MayRead(other);
  }
  if (at.to_memory && !at.in_both) {
    MayWrite(instance);
    return;
  }
  if (state.references == 0) {
    ReleaseSlot(instance);
  }
  Done(instance);
}

// The instance no longer touches user memory.
void Flow::Done(Instance instance) {
  for (const Step::Dependent& dependent : step(instance).on_done) {
    const Instance other = {instance.lane,
                            static_cast<std::uint32_t>(dependent.step)};
    if (dependent.write) {
      --cell(other).write_waits;
      MayWrite(other);
    } else {
      --cell(other).read_waits;
      MayRead(other);
    }
  }
  if (--lane_open_steps_[instance.lane] == 0) {
    --remaining_lanes_;
  }
}

void Flow::ReleaseSlot(Instance instance) {
  Cell& state = cell(instance);
  if (state.slot != SlotList::kNone) {
    slots_->Release(state.slot);
    state.slot = SlotList::kNone;
  }
}

void Flow::Unreference(Instance holder) {
  if (--cell(holder).references == 0) {
    ReleaseSlot(holder);
  }
}

void Flow::UnreferenceHolders(Instance instance) {
  for (const int holder : step(instance).holders) {
    Unreference({instance.lane, static_cast<std::uint32_t>(holder)});
  }
}

const Instance* Flow::NextSend(int peer) {
  Fifo<Instance>& sends = sends_[peer];
  return !sends.empty() && cell(sends.front()).ready ? &sends.front() : nullptr;
}

const Instance* Flow::NextReceive(int peer) {
  Fifo<Instance>& receives = receives_[peer];
  if (receives.empty()) {
    return nullptr;
  }
  const Instance& front = receives.front();
  // Once posted, a message may be placed at any moment.
  const bool writable =
      step(front).arrival != Arrival::kInTarget || cell(front).write_waits == 0;
  return writable ? &front : nullptr;
}

void Flow::Received(Instance instance) {
  --open_receives_[step(instance).transfer.peer];
  Arrive(instance);
}

void Flow::Arrive(Instance instance) {
  const Step& at = step(instance);
  cell(instance).arrived = true;
  if (at.transfer.kind == Kind::kReceiveReduce) {
    MayReduce(instance);
  } else if (at.arrival == Arrival::kInTarget) {
    Done(instance);
  } else if (at.arrival == Arrival::kInSlot) {
    Complete(instance);
  } else if (at.in_memory) {
    MayWrite(instance);
  } else {
    to_copy_in_.push(instance);
  }
}

void Flow::CopiedIn(Instance instance) {
  if (step(instance).transfer.kind == Kind::kSend) {
    cell(instance).ready = true;
  } else {
    UnreferenceHolders(instance);
    Complete(instance);
  }
}

void Flow::Reduced(Instance instance) {
  UnreferenceHolders(instance);
  if (step(instance).in_memory) {
    ReleaseSlot(instance);
    Done(instance);
  } else {
    Complete(instance);
  }
}

void Flow::CopiedOut(Instance instance) {
  if (step(instance).in_memory) {
    ReleaseSlot(instance);
    UnreferenceHolders(instance);
  } else {
    Unreference(instance);
  }
  Done(instance);
}

void Flow::Sent(Instance instance) {
  ReleaseSlot(instance);
  UnreferenceHolders(instance);
  Done(instance);
}

}  // namespace ringpipe
