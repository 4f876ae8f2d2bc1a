#include "bootstrap/earliest_timer.h"

#include <algorithm>
#include <chrono>

namespace ringpipe {

void EarliestTimer::Arm(int64_t left_ms, std::function<void()> expired) {
  if (left_ms < 0) {
    return;
  }
  // A peer may say any number.
  constexpr int64_t kYearMs = 365LL * 24 * 60 * 60 * 1000;
  const Clock::time_point at =
      Clock::now() + std::chrono::milliseconds(std::min(left_ms, kYearMs));
  if (at_ && *at_ <= at) {
    return;
  }
  at_ = at;
  timer_.expires_at(at);
  timer_.async_wait([this, expired = std::move(expired)](
                        const boost::system::error_code& error) {
    // By now it may be armed for a later time.
    if (!error && at_ && Clock::now() >= *at_) {
      expired();
    }
  });
}

void EarliestTimer::Disarm() {
  at_.reset();
  timer_.cancel();
}

}  // namespace ringpipe
