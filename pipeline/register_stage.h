#ifndef RINGPIPE_PIPELINE_REGISTER_STAGE_H_
#define RINGPIPE_PIPELINE_REGISTER_STAGE_H_

#include <vector>

#include "base/status.h"
#include "memory_pool/registration.h"
#include "pipeline/pipeline_state.h"
#include "pipeline/stage_meter.h"

namespace ringpipe {

// Registers user memory for one send, instead of copying it into a slot, while
// the wire is busy with those before; and deregisters it when the send has
// ended.
class RegisterStage {
 public:
  explicit RegisterStage(PipelineState& state) : state_(state) {}

  // Nothing allocates between here and the end of the collective.
  void Begin(std::size_t instances) {
    if (registrations_.size() < instances) {
      registrations_.resize(instances);
    }
  }

  // Registers what one send needs, if there is any. Returns whether there was.
  Result<bool> Advance();

  const RailKeys& lkeys(Instance instance) {
    return registrations_[Index(instance)].lkeys();
  }
  // The send has ended. An error leaves the memory registered.
  Status Release(Instance instance);

  // After a failure: gives back whatever is still registered. Returns whether
  // the devices let go of all of it.
  bool ReleaseAll();

  const StageMeter& meter() const { return meter_; }

 private:
  std::size_t Index(Instance instance) const {
    return instance.lane * state_.operation->plan->steps.size() + instance.step;
  }

  PipelineState& state_;
  StageMeter meter_{"register"};
  std::vector<Registration> registrations_;  // by lane, then step
  bool held_ = false;  // a device did not let go of something
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_REGISTER_STAGE_H_
