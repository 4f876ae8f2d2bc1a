#ifndef RINGPIPE_PIPELINE_COPY_OUT_STAGE_H_
#define RINGPIPE_PIPELINE_COPY_OUT_STAGE_H_

#include "pipeline/accelerator_stage.h"

namespace ringpipe {

// A complete value -> user memory: from a slot, or (local copies) from the
// input.
class CopyOutStage : public AcceleratorStage {
 public:
  explicit CopyOutStage(PipelineState& state)
      : AcceleratorStage(state, "copy out") {}

  Result<bool> Advance();
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_COPY_OUT_STAGE_H_
