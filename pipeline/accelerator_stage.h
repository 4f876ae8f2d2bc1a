#ifndef RINGPIPE_PIPELINE_ACCELERATOR_STAGE_H_
#define RINGPIPE_PIPELINE_ACCELERATOR_STAGE_H_

#include "base/deadline.h"
#include "base/status.h"
#include "cuda/accelerator.h"
#include "pipeline/pipeline_state.h"
#include "pipeline/stage_meter.h"

namespace ringpipe {

// What copy-in, reduce and copy-out have in common: work is started on the
// accelerator, and ends in the order in which it was started.
class AcceleratorStage {
 public:
  // Nothing allocates between here and the end of the collective.
  void Begin(std::size_t instances) { started_.Reset(instances); }

  bool busy() const { return !started_.empty(); }
  const StageMeter& meter() const { return meter_; }
  StageMeter& meter() { return meter_; }

 protected:
  AcceleratorStage(PipelineState& state, const char* name)
      : state_(state), meter_(name) {}

  // Starts the front of `ready`, if there is one, by `start(instance)`, which
  // returns its ticket; ends what has been done by `finish(instance)`. Returns
  // whether anything happened; an error of the accelerator.
  template <typename Start, typename Finish>
  Result<bool> Advance(Fifo<Instance>& ready, Start start, Finish finish) {
    bool happened = false;
    if (!ready.empty()) {
      const Instance instance = ready.pop();
      const Clock::time_point now = Clock::now();
      const Accelerator::Ticket ticket = start(instance);
      started_.push({instance, ticket, now, bytes_});
      happened = true;
    }
    Accelerator& accelerator = *state_.operation->accelerator;
    while (!started_.empty()) {
      const Started& first = started_.front();
      const Accelerator::Progress progress = accelerator.Poll(first.ticket);
      if (progress == Accelerator::Progress::kFailed) {
        return accelerator.error();
      }
      if (progress == Accelerator::Progress::kPending) {
        break;
      }
      const Started done = started_.pop();
      meter_.Add(done.bytes, Clock::now() - done.since);
      finish(done.instance);
      happened = true;
    }
    return happened;
  }

  PipelineState& state_;
  std::uint64_t bytes_ = 0;  // set by `start`: of the operation it starts

 private:
  struct Started {
    Instance instance;
    Accelerator::Ticket ticket;
    Clock::time_point since;
    std::uint64_t bytes;
  };

  StageMeter meter_;
  Fifo<Started> started_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_ACCELERATOR_STAGE_H_
