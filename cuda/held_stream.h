// For tests: a stream of a caller's that does what it is given once it is let
// go.
#ifndef RINGPIPE_CUDA_HELD_STREAM_H_
#define RINGPIPE_CUDA_HELD_STREAM_H_

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "base/status.h"
#include "cuda/cuda_driver.h"
#include "cuda/test_device.h"

namespace ringpipe {

class HeldStream {
 public:
  // `device`, whose context is current, outlives it. `blocking`: the legacy
  // default stream waits for it, and it for that one.
  static Result<std::unique_ptr<HeldStream>> Create(const TestDevice& device,
                                                    bool blocking = false) {
    auto held = std::unique_ptr<HeldStream>(new HeldStream(device));
    RINGPIPE_RETURN_IF_ERROR(device.Check(
        "cuStreamCreateWithPriority",
        device.driver().stream_create(
            &held->stream_, blocking ? 0 : CudaDriver::kStreamNonBlocking, 0)));
    RINGPIPE_RETURN_IF_ERROR(device.Check(
        "cuLaunchHostFunc",
        device.launch_host_function(
            held->stream_,
            [](void* self) { static_cast<HeldStream*>(self)->Hold(); },
            held.get())));
    return held;
  }
  // Once it has done what it was given.
  ~HeldStream() {
    LetGo();
    if (stream_ != nullptr) {
      static_cast<void>(device_.stream_synchronize(stream_));
      static_cast<void>(device_.driver().stream_destroy(stream_));
    }
  }
  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;

  void LetGo() { held_ = false; }
  CudaDriver::Stream stream() const { return stream_; }

 private:
  explicit HeldStream(const TestDevice& device) : device_(device) {}
  void Hold() const {
    while (held_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  const TestDevice& device_;
  CudaDriver::Stream stream_ = nullptr;
  std::atomic<bool> held_ = true;
};

}  // namespace ringpipe

#endif  // RINGPIPE_CUDA_HELD_STREAM_H_
