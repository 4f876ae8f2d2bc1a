#ifndef RINGPIPE_PIPELINE_HOST_SLEEPER_H_
#define RINGPIPE_PIPELINE_HOST_SLEEPER_H_

#include <sys/socket.h>

#include <atomic>
#include <vector>

#include "pipeline/host/layout.h"

namespace ringpipe {

// Before the owner sleeps. It has to look once more for what others have
// written before it does: see Sleeper::Notify.
inline void LieDown(RegionHeader& own) {
  own.asleep.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

inline void GetUp(RegionHeader& own) {
  own.asleep.store(0, std::memory_order_relaxed);
}

// A peer that may sleep. Any thread.
class Sleeper {
 public:
  Sleeper() = default;
  // `wake`: the end of a pair of sockets of which it has the other; outlives
  // this object. No peer can make a socket block whoever sends to it.
  Sleeper(RegionHeader& header, int wake) : header_(&header), wake_(wake) {}

  RegionHeader& header() const { return *header_; }

  // Wakes it where it is seen to sleep. After a full fence that is certain:
  // either this rank sees that the peer sleeps, or the peer, which looks once
  // more before it does, sees what was written before.
  void Notify() const {
    if (header_->asleep.load(std::memory_order_relaxed) != 0 &&
        header_->asleep.exchange(0) != 0) {
      // A datagram of no bytes: were the number another file's by now, it would
      // take nothing.
      static_cast<void>(send(wake_, "", 0, MSG_DONTWAIT | MSG_NOSIGNAL));
    }
  }

 private:
  RegionHeader* header_ = nullptr;
  int wake_ = -1;
};

// Wakes those for whom a rank has written something. The fence waits until the
// peers' cores have let go of what was written, so it comes later, when there
// is time for it: one for all. One thread at a time.
class Waker {
 public:
  explicit Waker(int size) : peers_(size), is_written_(size) {
    written_.reserve(size);
  }
  // Before the first call.
  void Attach(int peer, const Sleeper& end) { peers_[peer] = end; }
  const Sleeper& peer(int peer) const { return peers_[peer]; }

  // Something was written on which the peer may sleep. NotifyAgain has to
  // follow, before this rank sleeps itself, or is done.
  void Written(int peer) {
    peers_[peer].Notify();
    if (!is_written_[peer]) {
      is_written_[peer] = true;
      written_.push_back(peer);
    }
  }
  bool settled() const { return written_.empty(); }
  void NotifyAgain() {
    if (settled()) {
      return;
    }
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (const int peer : written_) {
      is_written_[peer] = false;
      peers_[peer].Notify();
    }
    written_.clear();
  }

 private:
  std::vector<Sleeper> peers_;  // by rank
  std::vector<bool> is_written_;
  std::vector<int> written_;  // since NotifyAgain
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_HOST_SLEEPER_H_
