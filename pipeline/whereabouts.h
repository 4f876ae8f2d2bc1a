#ifndef RINGPIPE_PIPELINE_WHEREABOUTS_H_
#define RINGPIPE_PIPELINE_WHEREABOUTS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/deadline.h"

namespace ringpipe {

// Where a rank is, which others ask when a call has expired.
struct Whereabouts {
  enum class Place : std::uint8_t {
    kOutside,  // of calls
    kInCall,
    kLeaving,       // destroys its communicator
    kAwaitsStream,  // has made a call, which begins after its caller's stream
  };
  Place place = Place::kOutside;
  std::uint64_t calls = 0;  // that it has begun
  // Since when it is there; in a call that stands still, since when that does.
  Clock::time_point since = {};
  // The ranks for which a call stands still: the first of them.
  std::array<int, 8> waits_for = {};
  std::size_t waits_for_count = 0;

  std::uint64_t calls_ended() const {
    return calls -
           (place == Place::kInCall || place == Place::kAwaitsStream ? 1 : 0);
  }

  void WaitFor(int rank) {
    if (waits_for_count < waits_for.size()) {
      waits_for[waits_for_count++] = rank;
    }
  }
};

// Those of this rank. One thread at a time writes; any thread reads.
class WhereaboutsRecord {
 public:
  // None of these locks: they are in the way of each call.
  void BeginCall(std::uint64_t calls, Clock::time_point since) {
    Tell(calls, Whereabouts::Place::kInCall, since);
  }
  void AwaitStream(std::uint64_t calls, Clock::time_point since) {
    Tell(calls, Whereabouts::Place::kAwaitsStream, since);
  }
  // The same number of calls, elsewhere.
  void Move(Whereabouts::Place place, Clock::time_point since) {
    Tell(state_.load(std::memory_order_relaxed) / kStates, place, since);
  }
  // In a call that stands still.
  void Wait(const Whereabouts& waiting) {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_ = waiting;
    state_.store(waiting.calls * kStates + kWaits, std::memory_order_release);
  }

  Whereabouts now() const {
    for (;;) {
      const std::uint64_t state = state_.load(std::memory_order_acquire);
      if (state % kStates != kWaits) {
        return {.place = static_cast<Whereabouts::Place>(state % kStates),
                .calls = state / kStates,
                .since = since_.load(std::memory_order_relaxed)};
      }
      const std::lock_guard<std::mutex> lock(mutex_);
      if (state_.load(std::memory_order_relaxed) == state) {
        return waiting_;
      }
    }
  }

 private:
  // The number of calls, times kStates; and the place, or kWaits.
  static constexpr std::uint64_t kStates = 5;
  static constexpr std::uint64_t kWaits = 4;

  void Tell(std::uint64_t calls, Whereabouts::Place place,
            Clock::time_point since) {
    since_.store(since, std::memory_order_relaxed);
    state_.store(calls * kStates + static_cast<std::uint64_t>(place),
                 std::memory_order_release);
  }

  std::atomic<std::uint64_t> state_ = 0;
  std::atomic<Clock::time_point> since_ = Clock::now();
  mutable std::mutex mutex_;
  Whereabouts waiting_;  // guarded by mutex_
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_WHEREABOUTS_H_
