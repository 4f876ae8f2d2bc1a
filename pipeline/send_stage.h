#ifndef RINGPIPE_PIPELINE_SEND_STAGE_H_
#define RINGPIPE_PIPELINE_SEND_STAGE_H_

#include "base/status.h"
#include "pipeline/pipeline_state.h"
#include "pipeline/register_stage.h"
#include "pipeline/stage_meter.h"

namespace ringpipe {

// Posts what is ready, in wire order, as far as the peer's credit and the send
// queue go.
class SendStage {
 public:
  SendStage(PipelineState& state, RegisterStage& registration)
      : state_(state), register_(registration) {}

  // Returns whether anything was posted.
  Result<bool> Advance();

  // The device is done with the source. An error where deregistering it fails.
  Status Completed(Instance instance);

  // Whether a message waits for nothing but the peer's credit.
  Result<bool> Starved(PeerConnection& connection);
  // Before this rank sleeps: asks the peers whose credit is missing to wake it.
  Status AnnounceSleep();

  const StageMeter& meter() const { return meter_; }
  StageMeter& meter() { return meter_; }

 private:
  // Adds to the rails' lists what may be sent to one peer. Returns whether
  // there was anything.
  Result<bool> AddSends(PeerConnection& connection);

  PipelineState& state_;
  RegisterStage& register_;
  StageMeter meter_{"send"};
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_SEND_STAGE_H_
