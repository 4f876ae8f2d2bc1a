#ifndef RINGPIPE_PIPELINE_WHEREABOUTS_H_
#define RINGPIPE_PIPELINE_WHEREABOUTS_H_

#include <array>
#include <cstdint>
#include <mutex>

#include "base/deadline.h"

namespace ringpipe {

// Where a rank is, which others ask when a call has expired.
struct Whereabouts {
  enum class Place : std::uint8_t {
    kOutside,  // of calls
    kInCall,
    kLeaving,  // destroys its communicator
  };
  Place place = Place::kOutside;
  std::uint64_t calls = 0;  // that it has begun
  // Since when it is there; in a call that stands still, since when that does.
  Clock::time_point since = {};
  // The ranks for which a call stands still: the first of them.
  std::array<int, 8> waits_for = {};
  std::size_t waits_for_count = 0;

  void WaitFor(int rank) {
    if (waits_for_count < waits_for.size()) {
      waits_for[waits_for_count++] = rank;
    }
  }
};

// Those of this rank. Thread-safe; nobody waits long: who writes does so at the
// ends of a call and before it sleeps.
class WhereaboutsRecord {
 public:
  void Set(const Whereabouts& whereabouts) {
    const std::lock_guard<std::mutex> lock(mutex_);
    now_ = whereabouts;
  }
  // The same number of calls, elsewhere.
  void Move(Whereabouts::Place place) {
    const std::lock_guard<std::mutex> lock(mutex_);
    now_ = {.place = place, .calls = now_.calls, .since = Clock::now()};
  }
  Whereabouts now() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return now_;
  }

 private:
  mutable std::mutex mutex_;
  Whereabouts now_ = {.since = Clock::now()};
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_WHEREABOUTS_H_
