#ifndef RINGPIPE_PIPELINE_HOST_CALL_LINES_H_
#define RINGPIPE_PIPELINE_HOST_CALL_LINES_H_

#include <array>
#include <cstdint>
#include <vector>

#include "pipeline/call_check.h"
#include "pipeline/host/layout.h"
#include "pipeline/host/sleeper.h"
#include "pipeline/memory.h"

namespace ringpipe {

// The first messages of one rank, of which each is the same for all its peers.
class CallLines {
 public:
  // `waker` and `check` outlive this object.
  CallLines(RegionHeader& own, Waker& waker, const CallCheck& check, int size)
      : own_(own), waker_(waker), check_(check), seen_(size) {}
  Waker& waker() { return waker_; }
  const CallCheck& check() const { return check_; }

  // This rank begins the running call of `check`, with each of its readers; and
  // then, also where there are none, once.
  void AddReader(int peer);
  void Begin(std::uint64_t sequence);
  // Those of the running call.
  const std::vector<int>& readers() const { return readers_; }

  // Whether the line may be written: nobody has to read what stands there.
  bool CanPublish();
  // With the eager message, or nullptr as long as there is none: to all
  // readers. Again for each of them, to no effect.
  void Publish(const Memory* payload);

  // The peer has begun the same call.
  void Saw(int peer) { seen_[peer] = call_; }

  // As in CallLine.
  std::uint64_t call() const { return call_; }

 private:
  struct Place {
    std::uint64_t call = 0;
    std::vector<int> readers;
  };

  void GoTo(std::uint64_t sequence);
  bool HasBegun(int peer, std::uint64_t call);
  void Written(const std::vector<int>& readers);

  RegionHeader& own_;
  Waker& waker_;
  const CallCheck& check_;
  std::vector<std::uint64_t> seen_;  // by rank: the latest call that it began
  std::array<Place, 2> places_;
  std::vector<int> readers_;
  std::uint64_t call_ = 0;
  bool published_ = true;
  bool has_payload_ = false;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_HOST_CALL_LINES_H_
