#ifndef RINGPIPE_PIPELINE_REDUCE_STAGE_H_
#define RINGPIPE_PIPELINE_REDUCE_STAGE_H_

#include "pipeline/accelerator_stage.h"

namespace ringpipe {

// slot = slot OP source, in the slot that was received: the partial sum travels
// on from there.
class ReduceStage : public AcceleratorStage {
 public:
  explicit ReduceStage(PipelineState& state)
      : AcceleratorStage(state, "reduce") {}

  Result<bool> Advance();
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_REDUCE_STAGE_H_
