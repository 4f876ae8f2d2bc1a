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

// Runs a plan whose messages are all eager: one step after the other, without
// Flow, slots and stages, which take longer than such a call. A send is done at
// once and waits for no receive, so that ranks that follow their schedules
// never wait for each other in a circle.
//
// One thread at a time.
class ShortRun {
 public:
  // Whoever drives the transports.
  class Driver {
   public:
    // Lets something happen, or some time pass. The error that ends the call.
    virtual Status LetHappen() = 0;
    // Something has happened, by a connection's Push.
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

  // Whether the operation is of the kind above.
  static bool Takes(const Operation& operation);

  // Runs state_.operation, whose connections have begun the call.
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
    values_[instance.step] = {data, bytes, true};
    meters_.receive.Add(bytes, {});
  }

 private:
  // What a step has received, or made of it.
  struct Value {
    const std::byte* data = nullptr;
    std::uint32_t bytes = 0;
    bool there = false;
  };

  const Step& step(std::uint32_t index) const {
    return state_.operation->plan->steps[index];
  }
  // Nothing allocates but for a plan, or a message, larger than all before.
  void Prepare();
  Status Send(std::uint32_t index, Driver& driver);
  Status Receive(std::uint32_t index, Connection::Events& events,
                 Driver& driver);
  Status CheckLength(std::uint32_t index) const;
  void Reduce(std::uint32_t index);
  void Copy(std::uint32_t index);
  Memory ValueOf(int holder, Place place) const;
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
  std::uint32_t bytes_ = 0;            // of each value
  std::size_t room_bytes_ = 0;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_SHORT_RUN_H_
