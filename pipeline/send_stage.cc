#include "pipeline/send_stage.h"

namespace ringpipe {

Result<bool> SendStage::Advance() {
  bool sent = false;
  for (PeerConnection* connection : state_.active) {
    // A peer that has said that it makes the same call: what it granted is for
    // this one.
    if (!connection->digest_verified) {
      continue;
    }
    // The lists are short; a long one is several.
    while (state_.flow.NextSend(connection->peer()) != nullptr) {
      const Clock::time_point start = Clock::now();
      RINGPIPE_ASSIGN_OR_RETURN(const bool added, AddSends(*connection));
      if (!added) {
        break;
      }
      RINGPIPE_RETURN_IF_ERROR(connection->PostSends());
      meter_.Busy(Clock::now() - start);
      sent = true;
    }
  }
  return sent;
}

Result<bool> SendStage::AddSends(PeerConnection& connection) {
  const int peer = connection.peer();
  const Instance* next = state_.flow.NextSend(peer);
  if (next == nullptr) {
    return false;
  }
  bool added = false;
  RINGPIPE_ASSIGN_OR_RETURN(std::uint64_t credit, connection.Credit());
  for (; next != nullptr && credit > 0;
       next = state_.flow.NextSend(peer), --credit) {
    PeerConnection::Rail& rail = connection.next_send_rail();
    if (!rail.channel->CanAddSend()) {
      break;
    }
    const Instance instance = *next;
    const int own = state_.flow.slot(instance);
    const PipelineState::Value value =
        own != SlotList::kNone ? state_.InSlot(own) : state_.SourceOf(instance);
    const RailKeys& lkeys = state_.flow.step(instance).registers
                                ? register_.lkeys(instance)
                                : *value.lkeys;
    rail.channel->AddSend(instance, value.data, value.bytes, lkeys[rail.index]);
    connection.CountSend();
    state_.flow.PopSend(peer);
    meter_.Add(value.bytes, Clock::duration::zero());
    added = true;
  }
  return added;
}

Status SendStage::Completed(Instance instance) {
  if (state_.flow.step(instance).registers) {
    RINGPIPE_RETURN_IF_ERROR(register_.Release(instance));
  }
  state_.flow.Sent(instance, state_.slots());
  return Status::Ok();
}

Result<bool> SendStage::Starved(PeerConnection& connection) {
  if (!connection.digest_verified ||
      state_.flow.NextSend(connection.peer()) == nullptr) {
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
