#ifndef RINGPIPE_PIPELINE_HOST_FIRST_MESSAGE_H_
#define RINGPIPE_PIPELINE_HOST_FIRST_MESSAGE_H_

#include <string>

#include "base/status.h"
#include "pipeline/connection.h"
#include "pipeline/host/call_lines.h"
#include "pipeline/host/host_peer.h"
#include "pipeline/memory.h"

namespace ringpipe {

// The first message of a call between this rank and one peer, each way: which
// call it is, and the eager message where there is one. One thread at a time.
class FirstMessage {
 public:
  // Of rank `self`. What is referred to outlives this object.
  FirstMessage(int self, HostPeer& peer, CallLines& lines)
      : self_(self), peer_(peer), lines_(lines) {}

  void Begin(const Connection::Call& call);

  // --- This rank's
  bool said() const { return said_; }
  // Whether an eager message is still to be sent.
  bool sends_eagerly() const { return sends_eagerly_; }
  bool CanSend() const { return lines_.CanPublish(); }
  void SendEagerly(const Memory& source);
  // Without the eager message, which may follow. Returns whether it could.
  bool Tell();
  // Whether it has still to go, with no eager message.
  bool has_to_tell() const { return !said_ && !sends_eagerly_; }

  // --- The peer's
  // Whether it has come, and is of the same call.
  bool has_come() const { return has_come_; }
  // Whether an eager message is still to be expected.
  bool expects_eagerly() const { return expects_eagerly_; }
  void Expect(Instance instance, const Memory& target);
  // Whether it was the eager message: it stays as it is until the next call.
  bool Release(Instance instance);
  // Takes what has come; returns whether anything has. kMismatch where the peer
  // makes another call.
  Result<bool> Poll(Connection::Events& events);

 private:
  enum class Eager { kNone, kExpected, kArrived };

  Result<bool> PollCall();
  Result<bool> PollEager(Connection::Events& events);
  std::string Name() const;

  const int self_;
  HostPeer& peer_;
  CallLines& lines_;

  bool said_ = true;
  bool sends_eagerly_ = false;
  bool has_come_ = false;
  bool expects_eagerly_ = false;
  Eager eager_ = Eager::kNone;
  Instance instance_;
  Memory target_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_HOST_FIRST_MESSAGE_H_
