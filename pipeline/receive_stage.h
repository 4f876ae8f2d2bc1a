#ifndef RINGPIPE_PIPELINE_RECEIVE_STAGE_H_
#define RINGPIPE_PIPELINE_RECEIVE_STAGE_H_

#include "base/status.h"
#include "pipeline/pipeline_state.h"
#include "pipeline/stage_meter.h"

namespace ringpipe {

// Posts receives as slots are acquired for them, tells the senders, and takes
// what arrives.
class ReceiveStage {
 public:
  explicit ReceiveStage(PipelineState& state) : state_(state) {}

  // Posts all that is issued and tells the peers. Returns whether anything was
  // done.
  Result<bool> Advance();

  // A sub-chunk of `bytes` from `connection` has arrived in `slot`. kInternal
  // for one that was not granted or is of another length than the schedule's.
  Status Arrived(PeerConnection& connection, int slot, std::uint32_t bytes);

  const StageMeter& meter() const { return meter_; }
  StageMeter& meter() { return meter_; }

 private:
  Status CheckLength(const PeerConnection& connection, Instance instance,
                     std::uint32_t bytes) const;

  PipelineState& state_;
  StageMeter meter_{"receive"};
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_RECEIVE_STAGE_H_
