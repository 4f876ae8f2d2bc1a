#include "pipeline/copy_in_stage.h"

namespace ringpipe {

Result<bool> CopyInStage::Advance() {
  return AcceleratorStage::Advance(
      state_.flow.to_copy_in(),
      [this](Instance instance) {
        const int slot = state_.flow.slot(instance);
        const PipelineState::Value source = state_.SourceOf(instance);
        state_.slot_bytes[slot] = source.bytes;
        bytes_ = source.bytes;
        return state_.operation->accelerator->CopyIn(state_.pool->data(slot),
                                                     source.data, source.bytes);
      },
      [this](Instance instance) {
        state_.flow.CopiedIn(instance, state_.slots());
      });
}

}  // namespace ringpipe
