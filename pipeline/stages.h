// The stages of one rank's pipeline. Each takes from the flow what is ready for
// it, does or starts it, and reports to the flow what has been done. Advance
// returns whether anything happened. One thread at a time, except the meters.
#ifndef RINGPIPE_PIPELINE_STAGES_H_
#define RINGPIPE_PIPELINE_STAGES_H_

#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "cuda/accelerator.h"
#include "pipeline/pipeline_state.h"
#include "pipeline/stage_meter.h"

namespace ringpipe {

class Stage {
 public:
  const StageMeter& meter() const { return meter_; }
  StageMeter& meter() { return meter_; }

 protected:
  Stage(PipelineState& state, TraceTrack track)
      : state_(state), meter_(track) {}

  PipelineState& state_;
  StageMeter meter_;
};

// What copy-in, reduce and copy-out have in common: work is started by whoever
// the memory belongs to. The host's ends at once; the device's ends later, in
// the order in which it was started.
class AcceleratorStage : public Stage {
 public:
  // Nothing allocates between here and the end of the collective.
  void Begin() { started_.Reset(state_.instances()); }
  bool busy() const { return !started_.empty(); }

 protected:
  struct Started {
    Accelerator::Ticket ticket;
    std::uint64_t bytes = 0;
    Instance instance = {};
    Clock::time_point since = {};
  };

  using Stage::Stage;

  Accelerator::Ticket Scale(Accelerator::Lane lane, const Memory& target,
                            const Memory& source);

  // Starts the front of `ready`, if there is one, by `start(instance)`, and
  // ends what has been done by `finish(instance)`.
  template <typename Start, typename Finish>
  Result<bool> Advance(Fifo<Instance>& ready, Start start, Finish finish);

 private:
  Result<bool> Ended(Accelerator::Ticket ticket);
  void Note(const Started& done);

  Fifo<Started> started_;  // by the device
};

// -> a slot of this rank: user memory, to be sent from there, kept as scratch,
// or on its way from one's memory to another's; or a message that lies at the
// peer.
class CopyInStage : public AcceleratorStage {
 public:
  explicit CopyInStage(PipelineState& state)
      : AcceleratorStage(state, TraceTrack::kCopyIn) {}
  Result<bool> Advance();
};

// target = own OP received (by rank: the lower one's operand first), for one
// message or for several that follow each other. The target is the slot in
// which the (last) message came or user memory.
class ReduceStage : public AcceleratorStage {
 public:
  explicit ReduceStage(PipelineState& state)
      : AcceleratorStage(state, TraceTrack::kReduce) {}
  Result<bool> Advance();

 private:
  Result<Started> Start(Instance instance);
  Status Finish(Instance instance);
};

// A complete value -> user memory: from a slot, from a message that lies at the
// peer, or (local copies) from user memory of the same owner.
class CopyOutStage : public AcceleratorStage {
 public:
  explicit CopyOutStage(PipelineState& state)
      : AcceleratorStage(state, TraceTrack::kCopyOut) {}
  Result<bool> Advance();
};

// Registers user memory for one send, instead of copying it into a slot, while
// the wire is busy with those before; and deregisters it when the send has
// ended.
class RegisterStage : public Stage {
 public:
  explicit RegisterStage(PipelineState& state)
      : Stage(state, TraceTrack::kRegister) {}

  // Nothing allocates between here and the end of the collective.
  void Begin();
  Result<bool> Advance();

  MemoryHandle handle(Instance instance) const {
    return handles_[state_.Index(instance)];
  }
  // The send has ended. An error leaves the memory registered.
  Status Release(Instance instance);

 private:
  Transport& TransportOf(Instance instance) const {
    return state_.transports.TransportTo(
        state_.flow.step(instance).transfer.peer);
  }

  std::vector<MemoryHandle> handles_;  // by Index
};

// Sends what is ready, in wire order, as far as the connections take it.
class SendStage : public Stage {
 public:
  SendStage(PipelineState& state, RegisterStage& registration)
      : Stage(state, TraceTrack::kSend), register_(registration) {}

  Result<bool> Advance(Connection::Events& events);
  // The source is free. An error where deregistering it fails.
  Status Sent(Instance instance);

 private:
  Result<bool> SendTo(Connection& connection);

  RegisterStage& register_;
};

// Says where messages go, and takes what arrives.
class ReceiveStage : public Stage {
 public:
  explicit ReceiveStage(PipelineState& state)
      : Stage(state, TraceTrack::kReceive) {}

  Result<bool> Advance(Connection::Events& events);
  // kInternal for a message of another length than the schedule's.
  Status Arrived(Instance instance, const std::byte* data, std::uint32_t bytes);

 private:
  Status CheckLength(Instance instance, std::uint32_t bytes) const;
  bool DeviceCanRead(const std::byte* data, std::uint32_t bytes) const;
  Status Fetch(Instance instance, PipelineState::Received& received);
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_STAGES_H_
