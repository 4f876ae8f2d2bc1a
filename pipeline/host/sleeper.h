#ifndef RINGPIPE_PIPELINE_HOST_SLEEPER_H_
#define RINGPIPE_PIPELINE_HOST_SLEEPER_H_

#include <sys/socket.h>

#include <atomic>

#include "pipeline/host/layout.h"

namespace ringpipe {

// A peer that may sleep. Any thread.
class Sleeper {
 public:
  Sleeper() = default;
  // `wake`: the end of a pair of sockets of which it has the other; outlives
  // this object. No peer can make a socket block whoever sends to it.
  Sleeper(RegionHeader& header, int wake) : header_(&header), wake_(wake) {}

  RegionHeader& header() const { return *header_; }

  // After a full fence: either this rank sees that the peer sleeps, or the
  // peer, which looks once more before it does, sees what was written before.
  void Notify() const {
    if (header_->asleep.load(std::memory_order_relaxed) != 0 &&
        header_->asleep.exchange(0) != 0) {
      static_cast<void>(send(wake_, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
    }
  }

 private:
  RegionHeader* header_ = nullptr;
  int wake_ = -1;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_HOST_SLEEPER_H_
