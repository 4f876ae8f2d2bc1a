#include "pipeline/host/host_connection.h"

namespace ringpipe {

void HostConnection::Begin(const Call& call) {
  first_.Begin(call);
  stalled_ = false;
}

void HostConnection::Expect(Instance instance, const Memory& target) {
  if (first_.expects_eagerly()) {
    first_.Expect(instance, target);
  } else {
    stream_.Expect(instance, target);
  }
}

Result<bool> HostConnection::CanSend() {
  const bool can = first_.sends_eagerly() ? first_.CanSend()
                                          : stream_.CanSend(first_.has_come());
  stalled_ = !can;
  return can;
}

Result<bool> HostConnection::Send(Instance instance, Pieces pieces) {
  if (first_.sends_eagerly()) {
    first_.SendEagerly(pieces.front());
    return true;
  }
  return stream_.Send(instance, pieces.front(), first_.has_come(),
                      lines_.call());
}

Status HostConnection::Release(Instance instance) {
  return first_.Release(instance) ? Status::Ok()
                                  : stream_.Release(instance, lines_.call());
}

// The first message may be there already.
Result<bool> HostConnection::Progress(Events& events) {
  const bool told = first_.has_to_tell() && first_.Tell();
  RINGPIPE_ASSIGN_OR_RETURN(const bool arrived, first_.Poll(events));
  return told || arrived;
}

Status HostConnection::Announce() {
  first_.Tell();
  return Status::Ok();
}

Result<bool> HostConnection::Poll(Events& events) {
  RINGPIPE_ASSIGN_OR_RETURN(bool happened, first_.Poll(events));
  if (first_.has_come()) {
    RINGPIPE_ASSIGN_OR_RETURN(const bool taken,
                              stream_.PollMessages(events, lines_.call()));
    happened |= taken;
  }
  if (stream_.sending()) {
    RINGPIPE_ASSIGN_OR_RETURN(const bool released,
                              stream_.PollReleased(events));
    happened |= released;
  }
  // What stood still may go on.
  if (stalled_) {
    RINGPIPE_ASSIGN_OR_RETURN(const bool can, CanSend());
    happened |= can;
  }
  return happened || (first_.has_to_tell() && first_.CanSend());
}

}  // namespace ringpipe
