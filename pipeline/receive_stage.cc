#include "pipeline/receive_stage.h"

#include <string>

namespace ringpipe {

Result<bool> ReceiveStage::Advance() {
  bool happened = false;
  const Clock::time_point start = Clock::now();
  Fifo<Instance>& to_post = state_.flow.to_post();
  while (!to_post.empty()) {
    const Instance instance = to_post.pop();
    PeerConnection& connection =
        *state_.connections[state_.flow.step(instance).transfer.peer];
    RINGPIPE_RETURN_IF_ERROR(connection.PostReceive(
        *state_.pool, state_.flow.slot(instance), /*for_data=*/true));
    happened = true;
  }
  for (PeerConnection* connection : state_.active) {
    if (connection->HasGrantsToTell() && connection->HasRoom()) {
      RINGPIPE_RETURN_IF_ERROR(connection->TellGrants());
      happened = true;
    }
  }
  if (happened) {
    meter_.Busy(Clock::now() - start);
  }
  return happened;
}

Status ReceiveStage::CheckLength(const PeerConnection& connection,
                                 Instance instance, std::uint32_t bytes) const {
  const Step& step = state_.flow.step(instance);
  std::uint64_t expected = bytes;
  if (step.transfer.kind == Transfer::Kind::kReceiveReduce &&
      step.source_step < 0) {
    expected = state_.InMemory(step.transfer.source, instance).bytes;
  } else if (step.to_memory) {
    expected = state_.InMemory(step.transfer.target, instance).bytes;
  }
  if (bytes != expected || bytes % SizeOf(state_.operation->type) != 0) {
    return {StatusCode::kInternal, "rank " + std::to_string(connection.peer()) +
                                       " sent " + std::to_string(bytes) +
                                       " bytes where the schedule has " +
                                       std::to_string(expected)};
  }
  return Status::Ok();
}

Status ReceiveStage::Arrived(PeerConnection& connection, int slot,
                             std::uint32_t bytes) {
  if (!state_.flow.HasReceives(connection.peer())) {
    return {StatusCode::kInternal, "rank " + std::to_string(connection.peer()) +
                                       " sent data that it was not granted"};
  }
  const Instance instance = state_.flow.PopReceive(connection.peer());
  RINGPIPE_RETURN_IF_ERROR(CheckLength(connection, instance, bytes));
  state_.flow.set_slot(instance, slot);
  state_.slot_bytes[slot] = bytes;
  meter_.Add(bytes, Clock::duration::zero());
  state_.flow.Received(instance, state_.slots());
  return Status::Ok();
}

}  // namespace ringpipe
