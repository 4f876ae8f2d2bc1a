#include "pipeline/send_stage.h"

namespace ringpipe {

Result<bool> SendStage::Advance() {
  bool posted = false;
  for (PeerConnection* connection : state_.active) {
    const int peer = connection->peer();
    const Instance* next = state_.flow.NextSend(peer);
    if (next == nullptr) {
      continue;
    }
    RINGPIPE_ASSIGN_OR_RETURN(std::uint64_t credit, connection->Credit());
    for (; next != nullptr && credit > 0 && connection->HasDataRoom();
         next = state_.flow.NextSend(peer), --credit) {
      const Instance instance = *next;
      const Clock::time_point start = Clock::now();
      const int own = state_.flow.slot(instance);
      const PipelineState::Value value = own != SlotList::kNone
                                             ? state_.InSlot(own)
                                             : state_.SourceOf(instance);
      RINGPIPE_RETURN_IF_ERROR(
          connection->SendData(instance, value.data, value.bytes, value.lkey));
      state_.flow.PopSend(peer);
      meter_.Add(value.bytes, Clock::now() - start);
      posted = true;
    }
  }
  return posted;
}

Result<bool> SendStage::Starved(PeerConnection& connection) {
  if (state_.flow.NextSend(connection.peer()) == nullptr) {
    return false;
  }
  RINGPIPE_ASSIGN_OR_RETURN(const std::uint64_t credit, connection.Credit());
  return credit == 0;
}

Status SendStage::AnnounceSleep() {
  for (PeerConnection* connection : state_.active) {
    RINGPIPE_ASSIGN_OR_RETURN(const bool starved, Starved(*connection));
    if (starved) {
      RINGPIPE_RETURN_IF_ERROR(connection->SendSleep());
    }
  }
  return Status::Ok();
}

}  // namespace ringpipe
