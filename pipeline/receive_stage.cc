#include "pipeline/receive_stage.h"

#include <string>

namespace ringpipe {

Result<bool> ReceiveStage::Advance() {
  bool happened = false;
  const Clock::time_point start = Clock::now();
  for (PeerConnection* connection : state_.active) {
    AddReceives(*connection);
    RINGPIPE_ASSIGN_OR_RETURN(const bool posted, connection->PostReceives());
    happened |= posted;
  }
  if (happened) {
    meter_.Busy(Clock::now() - start);
  }
  return happened;
}

void ReceiveStage::AddReceives(PeerConnection& connection) {
  const int peer = connection.peer();
  while (const Instance* next = state_.flow.NextReceive(peer)) {
    PeerConnection::Rail& rail = connection.next_receive_rail();
    if (!rail.channel->CanAddReceive()) {
      return;
    }
    const PipelineState::Value target = state_.TargetOf(*next);
    rail.channel->AddReceive(*next, target.data, target.bytes,
                             (*target.lkeys)[rail.index]);
    connection.CountReceive();
    state_.flow.PopReceive(peer);
  }
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

Status ReceiveStage::Arrived(const PeerConnection& connection,
                             Instance instance, std::uint32_t bytes) {
  RINGPIPE_RETURN_IF_ERROR(CheckLength(connection, instance, bytes));
  const int slot = state_.flow.slot(instance);
  if (slot != SlotList::kNone) {
    state_.slot_bytes[slot] = bytes;
  }
  meter_.Add(bytes, Clock::duration::zero());
  state_.flow.Received(instance, state_.slots());
  return Status::Ok();
}

}  // namespace ringpipe
