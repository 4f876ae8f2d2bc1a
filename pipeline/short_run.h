#ifndef RINGPIPE_PIPELINE_SHORT_RUN_H_
#define RINGPIPE_PIPELINE_SHORT_RUN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "pipeline/connection.h"
#include "pipeline/instance.h"
#include "pipeline/operation.h"
#include "pipeline/pipeline_state.h"
#include "pipeline/stage_meter.h"

namespace ringpipe {

// Runs a plan whose messages are all eager, and lie together: one step after
// the other, without Flow, slots and stages, which take longer than such a
// call. A send is done at once and waits for no receive, so that ranks that
// follow their schedules never wait for each other in a circle.
//
// One thread at a time.
class ShortRun {
 public:
  // Whoever drives the transports.
  class Driver {
   public:
    // Lets something happen, or some time pass. The error that ends the call.
    virtual Status LetHappen() = 0;
    // Something has happened, by a connection's Progress.
    virtual void Happened() = 0;

   protected:
    ~Driver() = default;
  };

  // Of the stages whose work it does.
  struct Meters {
    StageMeter& send;
    StageMeter& receive;
    StageMeter& reduce;
    StageMeter& copy_out;
  };

  ShortRun(PipelineState& state, const Meters& meters)
      : state_(state), meters_(meters) {}

  // Sets short_steps, and so makes it short, if it is of the kind above.
  static void Measure(Operation& operation);

  // Runs state_.operation, which is short, and whose connections have begun the
  // call.
  Status Run(Connection::Events& events, Driver& driver);
  // Whether it stands still for a message from the peer, or to it.
  bool Receives(int peer) const {
    return current_ != nullptr && current_->receives() &&
           current_->peer == peer;
  }
  bool Sends(int peer) const {
    return current_ != nullptr && !current_->receives() &&
           current_->peer == peer;
  }
  // Events::Arrived, during Run.
  void Arrived(Instance instance, const std::byte* data, std::uint32_t bytes) {
    values_[instance.step] = {const_cast<std::byte*>(data), bytes, true};
    meters_.receive.Add(bytes, {});
    if (state_.trace != nullptr) {
      state_.trace->MessageEnds(TraceTrack::kReceive, instance.step,
                                PartOf(instance.step));
    }
  }

 private:
  // What a step has received, or made of it.
  struct Value {
    std::byte* data = nullptr;
    std::uint32_t bytes = 0;
    bool there = false;
  };

  const Step& step(std::uint32_t index) const {
    return state_.operation->plan->steps[index];
  }
  // Allocates only for a plan, or messages, larger than all before.
  void Prepare();
  Status Send(std::uint32_t index, Driver& driver);
  Status Receive(std::uint32_t index, Connection::Events& events,
                 Driver& driver);
  Status CheckLength(std::uint32_t index) const;
  // What follows the receive: Reduce or Copy.
  void Finish(std::uint32_t index);
  void Reduce(std::uint32_t index);
  void Copy(std::uint32_t index);
  const ShortStep& measured(std::uint32_t index) const {
    return state_.operation->short_steps[index];
  }
  std::byte* At(const ShortStep::Location& location) const {
    const Operation& operation = *state_.operation;
    return location.holder >= 0
               ? values_[location.holder].data + location.offset
               : reinterpret_cast<std::byte*>(
                     (location.in_output ? operation.output : operation.input)
                         .base +
                     location.offset);
  }
  CallTrace::Part PartOf(std::uint32_t index) const {
    const Transfer& transfer = step(index).transfer;
    return {index, 0, transfer.has_peer() ? transfer.peer : TraceEvent::kNoPeer,
            measured(index).bytes};
  }
  // Where the step writes.
  std::byte* TargetOf(std::uint32_t index);
  std::byte* Room(std::uint32_t index) {
    return room_.data() + index * room_bytes_;
  }

  PipelineState& state_;
  const Meters meters_;
  const Transfer* current_ = nullptr;  // the step at which Run is
  std::vector<Value> values_;          // by step
  std::vector<std::byte> room_;        // by step, for what goes to scratch
  std::size_t room_bytes_ = 0;         // of a step
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_SHORT_RUN_H_
