#include "pipeline/copy_out_stage.h"

namespace ringpipe {

Result<bool> CopyOutStage::Advance() {
  return AcceleratorStage::Advance(
      state_.flow.to_copy_out(),
      [this](Instance instance) {
        const Transfer& transfer = state_.flow.step(instance).transfer;
        Accelerator& accelerator = *state_.operation->accelerator;
        const PipelineState::Value target =
            state_.InMemory(transfer.target, instance);
        bytes_ = target.bytes;
        int slot = state_.flow.slot(instance);
        if (transfer.kind == Transfer::Kind::kLocalCopy) {
          slot = state_.flow.source_slot(instance);
          if (slot == SlotList::kNone) {
            return accelerator.CopyWithin(
                target.data, state_.SourceOf(instance).data, target.bytes);
          }
        }
        return accelerator.CopyOut(target.data, state_.pool->data(slot),
                                   target.bytes);
      },
      [this](Instance instance) {
        state_.flow.CopiedOut(instance, state_.slots());
      });
}

}  // namespace ringpipe
