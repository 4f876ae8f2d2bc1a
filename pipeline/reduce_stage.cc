#include "pipeline/reduce_stage.h"

namespace ringpipe {

Result<bool> ReduceStage::Advance() {
  return AcceleratorStage::Advance(
      state_.flow.to_reduce(),
      [this](Instance instance) {
        const Operation& operation = *state_.operation;
        const PipelineState::Value source = state_.SourceOf(instance);
        bytes_ = source.bytes;
        return operation.accelerator->Reduce(
            operation.type, operation.op,
            state_.pool->data(state_.flow.slot(instance)), source.data,
            source.bytes / SizeOf(operation.type),
            state_.flow.step(instance).transfer.finish ? state_.size : 0);
      },
      [this](Instance instance) {
        state_.flow.Reduced(instance, state_.slots());
      });
}

}  // namespace ringpipe
