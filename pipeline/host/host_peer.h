#ifndef RINGPIPE_PIPELINE_HOST_HOST_PEER_H_
#define RINGPIPE_PIPELINE_HOST_HOST_PEER_H_

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "pipeline/host/layout.h"
#include "pipeline/host/region.h"
#include "pipeline/host/region_trade.h"
#include "pipeline/host/sleeper.h"

namespace ringpipe {

// Another rank of this host: the memory that both share, and how it ends. One
// thread at a time, but for sleeper().
class HostPeer {
 public:
  // `own` is the region of rank `self`; `waker`, its own, outlives this object.
  HostPeer(int self, int rank, std::shared_ptr<Region> own, Waker& waker);

  // The peer's end. Before the first call.
  void Attach(RegionPeer peer);
  bool attached() const { return out_ != nullptr; }

  int rank() const { return rank_; }
  Region& own() const { return *own_; }
  Region& region() const { return *end_.region; }
  RegionHeader& header() const { return sleeper_.header(); }
  // What the peer writes for this rank, and this rank for the peer.
  const Inbox& in() const { return *in_; }
  Inbox& out() const { return *out_; }
  // After whatever the peer may sleep on was written.
  void Written() { waker_.Written(rank_); }
  // Any thread.
  const Sleeper& sleeper() const { return sleeper_; }
  const RegionPeer& end() const { return end_; }

  // --- How it ends

  // Its process has ended.
  void NoteDeath() { has_died_ = true; }
  // Why the peer has ended call number `call` - 1, if it has; or that it has
  // died.
  Status WhyEnded(std::uint64_t call) const;
  // Why it has ended the communicator, if it says so; kPeerLost else.
  Status HasEnded(std::uint64_t call) const;
  // What was read from its memory is what it sent, unless it has failed
  // meanwhile and given that memory back to its user: then HasEnded.
  Status CheckWhatWasRead(std::uint64_t call) const;
  // Whether it may be writing into this rank's memory.
  bool Writes() const;

  // Says in the owner's region why that ends the communicator, for calls from
  // number `first` on. The first reason counts. Any thread.
  static void Tell(RegionHeader& own, const Status& reason,
                   std::uint64_t first);

 private:
  Status Reason(std::uint64_t call) const;
  bool IsDead() const;

  const int self_;
  const int rank_;
  const std::shared_ptr<Region> own_;
  Waker& waker_;
  RegionPeer end_;
  bool has_died_ = false;
  Sleeper sleeper_;
  Inbox* const in_;
  Inbox* out_ = nullptr;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_HOST_HOST_PEER_H_
