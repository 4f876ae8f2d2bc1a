// A point in time that a wait must not pass.
#ifndef RINGPIPE_BASE_DEADLINE_H_
#define RINGPIPE_BASE_DEADLINE_H_

#include <time.h>

#include <algorithm>
#include <chrono>

namespace ringpipe {

using Clock = std::chrono::steady_clock;

// Clock::now() up to a tick of the kernel ago, for a fraction of the price.
constexpr std::chrono::milliseconds kClockTick(10);
inline Clock::time_point CoarseNow() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return Clock::time_point(std::chrono::seconds(now.tv_sec) +
                           std::chrono::nanoseconds(now.tv_nsec));
}

// A value; every wait in ringpipe takes one.
class Deadline {
 public:
  static Deadline At(Clock::time_point when) { return Deadline(when); }
  static Deadline Infinite() { return Deadline(Clock::time_point::max()); }

  // `timeout` from now; never where it is negative, or more than 100 years
  // (such as milliseconds::max()), which the clock could not hold.
  template <typename Rep, typename Period>
  static Deadline After(std::chrono::duration<Rep, Period> timeout) {
    constexpr std::chrono::hours kNever(100 * 365 * 24);
    return timeout.count() < 0 || timeout > kNever
               ? Infinite()
               : Deadline(Clock::now() + timeout);
  }

  // The same for short calls: from a second on it may be a tick later.
  template <typename Rep, typename Period>
  static Deadline AfterRoughly(std::chrono::duration<Rep, Period> timeout) {
    return timeout < std::chrono::seconds(1) ||
                   timeout > std::chrono::hours(365 * 24)
               ? After(timeout)
               : Deadline(CoarseNow() + timeout + kClockTick);
  }

  bool infinite() const { return when_ == Clock::time_point::max(); }
  bool expired() const { return !infinite() && Clock::now() >= when_; }
  Clock::time_point when() const { return when_; }

  // For poll(): milliseconds until the deadline, rounded up, at most `most`.
  int PollTimeoutMs(int most) const {
    if (infinite()) {
      return most;
    }
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(when_ - Clock::now());
    return static_cast<int>(std::clamp<long long>(left.count(), 0, most));
  }

 private:
  explicit Deadline(Clock::time_point when) : when_(when) {}

  Clock::time_point when_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_DEADLINE_H_
