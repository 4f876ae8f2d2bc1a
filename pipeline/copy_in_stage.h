#ifndef RINGPIPE_PIPELINE_COPY_IN_STAGE_H_
#define RINGPIPE_PIPELINE_COPY_IN_STAGE_H_

#include "pipeline/accelerator_stage.h"

namespace ringpipe {

// User memory -> a slot of this rank, to be sent from there (or kept as
// scratch).
class CopyInStage : public AcceleratorStage {
 public:
  explicit CopyInStage(PipelineState& state)
      : AcceleratorStage(state, "copy in") {}

  Result<bool> Advance();
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_COPY_IN_STAGE_H_
