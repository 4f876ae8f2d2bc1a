#include "pipeline/register_stage.h"

namespace ringpipe {

Result<bool> RegisterStage::Advance() {
  if (state_.flow.to_register().empty()) {
    return false;
  }
  const Instance instance = state_.flow.to_register().pop();
  const PipelineState::Value source = state_.SourceOf(instance);
  const Clock::time_point start = Clock::now();
  if (source.bytes > 0) {
    RINGPIPE_ASSIGN_OR_RETURN(
        registrations_[Index(instance)],
        Registration::Create(state_.rails, source.data, source.bytes, 0,
                             /*relaxed=*/true));
  }
  meter_.Add(source.bytes, Clock::now() - start);
  state_.flow.Registered(instance);
  return true;
}

Status RegisterStage::Release(Instance instance) {
  const Clock::time_point start = Clock::now();
  Status status = registrations_[Index(instance)].Release();
  held_ |= !status.ok();
  meter_.Busy(Clock::now() - start);
  return status;
}

bool RegisterStage::ReleaseAll() {
  for (Registration& registration : registrations_) {
    held_ |= !registration.Release().ok();
  }
  return !held_;
}

}  // namespace ringpipe
