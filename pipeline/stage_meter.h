#ifndef RINGPIPE_PIPELINE_STAGE_METER_H_
#define RINGPIPE_PIPELINE_STAGE_METER_H_

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/counters.h"
#include "base/deadline.h"
#include "pipeline/trace.h"

namespace ringpipe {

// Counts for one stage. One thread adds; any thread reads.
class StageMeter {
 public:
  explicit StageMeter(TraceTrack stage) : stage_(stage) {}

  TraceTrack stage() const { return stage_; }

  void Add(std::uint64_t bytes, Clock::duration busy) {
    Bump(operations_, 1);
    Bump(bytes_, bytes);
    Bump(busy_ns_, std::chrono::nanoseconds(busy).count());
  }
  // Time that belongs to no single operation.
  void Busy(Clock::duration busy) {
    Bump(busy_ns_, std::chrono::nanoseconds(busy).count());
  }
  void Waited(Clock::duration time) {
    Bump(waits_, 1);
    Bump(wait_ns_, std::chrono::nanoseconds(time).count());
  }

  StageCounters counters() const {
    return {Name(stage_),
            operations_.load(std::memory_order_relaxed),
            bytes_.load(std::memory_order_relaxed),
            busy_ns_.load(std::memory_order_relaxed),
            waits_.load(std::memory_order_relaxed),
            wait_ns_.load(std::memory_order_relaxed)};
  }

 private:
  using Counter = std::atomic<std::uint64_t>;

  // One writer: no read-modify-write instruction is needed.
  static void Bump(Counter& counter, std::uint64_t by) {
    counter.store(counter.load(std::memory_order_relaxed) + by,
                  std::memory_order_relaxed);
  }

  const TraceTrack stage_;
  Counter operations_ = 0, bytes_ = 0, busy_ns_ = 0, waits_ = 0, wait_ns_ = 0;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_STAGE_METER_H_
