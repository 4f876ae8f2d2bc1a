// A connection between two ranks of one host, through the memory that they
// share: neither verbs nor, while both are awake, system calls.
#ifndef RINGPIPE_PIPELINE_HOST_HOST_CONNECTION_H_
#define RINGPIPE_PIPELINE_HOST_HOST_CONNECTION_H_

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "pipeline/connection.h"
#include "pipeline/host/call_lines.h"
#include "pipeline/host/first_message.h"
#include "pipeline/host/host_peer.h"
#include "pipeline/host/message_stream.h"
#include "pipeline/host/region.h"
#include "pipeline/host/tuning.h"

namespace ringpipe {

class HostConnection final : public Connection {
 public:
  // From rank `self`, whose region is `own`. `lines` outlives the connection.
  HostConnection(int self, int peer, std::shared_ptr<Region> own,
                 CallLines& lines)
      : Connection(peer),
        lines_(lines),
        peer_(self, peer, std::move(own), lines.waker()),
        first_(self, peer_, lines),
        stream_(peer_) {}

  HostPeer& other() { return peer_; }
  MessageStream& stream() { return stream_; }

  Abilities abilities() const override {
    return {.reads_peer = true,
            .eager_bytes = kHostEagerBytes,
            .eager_to_all = true};
  }

  void Begin(const Call& call) override;
  // A call does not end before this rank has said that it makes it: peers wait
  // for that.
  bool agreed() const override { return first_.has_come() && first_.said(); }
  bool CanExpect() const override {
    return first_.expects_eagerly() || stream_.CanExpect();
  }
  Result<bool> CanSend() override;
  void Expect(Instance instance, const Memory& target) override;
  Result<bool> Send(Instance instance, Pieces pieces) override;
  Status Release(Instance instance) override;
  Result<bool> Progress(Events& events) override;
  bool holds_back() const override {
    return !first_.said() && first_.sends_eagerly();
  }
  Status Announce() override;
  bool sending() const override { return stream_.sending(); }
  // Whatever happens wakes.
  Status PrepareToSleep(bool /*has_message*/) override { return Status::Ok(); }
  Status Probe() override { return Status::Ok(); }
  // Why the peer has ended the running call, if it has; or that it has died.
  Status failure() const override { return peer_.WhyEnded(lines_.call()); }

  // Whether anything has happened.
  Result<bool> Poll(Events& events);

 private:
  CallLines& lines_;
  HostPeer peer_;
  FirstMessage first_;
  MessageStream stream_;
  bool stalled_ = false;  // the last message did not go
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_HOST_HOST_CONNECTION_H_
