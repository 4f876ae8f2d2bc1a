#ifndef RINGPIPE_BOOTSTRAP_EARLIEST_TIMER_H_
#define RINGPIPE_BOOTSTRAP_EARLIEST_TIMER_H_

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>  // before Asio: Boost 1.74 needs it there

#include "base/deadline.h"

namespace ringpipe {

// Of several deadlines, one for each rank that has a say, the earliest. The
// io_context's one thread.
class EarliestTimer {
 public:
  explicit EarliestTimer(boost::asio::io_context& io) : timer_(io) {}

  // Calls `expired` when `left_ms` (negative: never) have passed, unless Disarm
  // comes before, or it has been armed for an earlier time.
  void Arm(int64_t left_ms, std::function<void()> expired);
  void Disarm();

 private:
  boost::asio::steady_timer timer_;
  std::optional<Clock::time_point> at_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_BOOTSTRAP_EARLIEST_TIMER_H_
