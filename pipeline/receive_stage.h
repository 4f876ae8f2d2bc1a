#ifndef RINGPIPE_PIPELINE_RECEIVE_STAGE_H_
#define RINGPIPE_PIPELINE_RECEIVE_STAGE_H_

#include "base/status.h"
#include "pipeline/pipeline_state.h"
#include "pipeline/stage_meter.h"

namespace ringpipe {

// Posts receives, tells the senders, and takes what arrives.
class ReceiveStage {
 public:
  explicit ReceiveStage(PipelineState& state) : state_(state) {}

  // Posts what is issued and may be written, as far as there is room, and tells
  // the peers. Returns whether anything was done.
  Result<bool> Advance();

  // The message for `instance` has arrived from `connection`. kInternal for one
  // of another length than the schedule's.
  Status Arrived(const PeerConnection& connection, Instance instance,
                 std::uint32_t bytes);

  const StageMeter& meter() const { return meter_; }
  StageMeter& meter() { return meter_; }

 private:
  // Adds to the rails' lists what can be posted for one peer.
  void AddReceives(PeerConnection& connection);
  Status CheckLength(const PeerConnection& connection, Instance instance,
                     std::uint32_t bytes) const;

  PipelineState& state_;
  StageMeter meter_{"receive"};
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_RECEIVE_STAGE_H_
