#ifndef RINGPIPE_CUDA_CUDA_LANE_H_
#define RINGPIPE_CUDA_CUDA_LANE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cuda/cuda_driver.h"
#include "cuda/cuda_error.h"

namespace ringpipe {

// A stream, and a ring of events that mark the ends of the operations on it.
// Every function is called with the stream's context current.
//
// Sequence s is marked by event s % kEvents. An event that was recorded again
// (for s + kEvents) before anybody polled s answers for the later operation,
// which follows s on the same stream: too late, never too early. So the ring
// bounds no one, and nothing waits for a free event.
class CudaLane {
 public:
  static constexpr std::uint64_t kEvents = 256;

  // `driver` outlives it.
  explicit CudaLane(const CudaDriver& driver) : driver_(driver) {}
  CudaLane(const CudaLane&) = delete;
  CudaLane& operator=(const CudaLane&) = delete;

  // Goes on where an earlier attempt failed.
  Status Create(int priority) {
    if (stream_ == nullptr) {
      // Not ordered with the legacy default stream, which would serialise all.
      RINGPIPE_RETURN_IF_ERROR(
          CudaStatus(driver_, "creating a stream",
                     driver_.stream_create(
                         &stream_, CudaDriver::kStreamNonBlocking, priority)));
    }
    // One more, for DrainMark.
    events_.reserve(kEvents + 1);
    while (events_.size() < kEvents + 1) {
      CudaDriver::Event event = nullptr;
      RINGPIPE_RETURN_IF_ERROR(CudaStatus(
          driver_, "creating an event",
          driver_.event_create(&event, CudaDriver::kEventDisableTiming)));
      events_.push_back(event);
    }
    return Status::Ok();
  }

  void Destroy() {
    for (const CudaDriver::Event event : events_) {
      static_cast<void>(driver_.event_destroy(event));
    }
    events_.clear();
    if (stream_ != nullptr) {
      static_cast<void>(
          driver_.stream_destroy(std::exchange(stream_, nullptr)));
    }
  }

  CudaDriver::Stream stream() const { return stream_; }

  // The sequence number of what is started next; Mark() ends it.
  std::uint64_t next() const { return started_ + 1; }

  CudaDriver::Error Mark() {
    ++started_;
    return driver_.event_record(events_[started_ % kEvents], stream_);
  }

  // Whether an earlier Query has seen that `sequence` is done.
  bool SeenDone(std::uint64_t sequence) const { return sequence <= completed_; }

  // kSuccess if `sequence` is done, kNotReady if it is not.
  CudaDriver::Error Query(std::uint64_t sequence) {
    const CudaDriver::Error result =
        driver_.event_query(events_[sequence % kEvents]);
    if (result == CudaDriver::kSuccess) {
      completed_ = sequence;
    }
    return result;
  }

  // An event after all that the stream was given, also after operations whose
  // Mark failed.
  CudaDriver::Error DrainMark() {
    return driver_.event_record(events_.back(), stream_);
  }
  CudaDriver::Error QueryDrainMark() {
    return driver_.event_query(events_.back());
  }

 private:
  const CudaDriver& driver_;
  CudaDriver::Stream stream_ = nullptr;
  std::vector<CudaDriver::Event> events_;
  std::uint64_t started_ = 0;    // sequences begin at 1
  std::uint64_t completed_ = 0;  // the last that is known to be done
};

}  // namespace ringpipe

#endif  // RINGPIPE_CUDA_CUDA_LANE_H_
