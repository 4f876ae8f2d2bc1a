// RAII over the context that a device's streams and events live in.
#ifndef RINGPIPE_CUDA_CUDA_CONTEXT_H_
#define RINGPIPE_CUDA_CUDA_CONTEXT_H_

#include "base/status.h"
#include "cuda/cuda_driver.h"
#include "cuda/cuda_error.h"

namespace ringpipe {

// The primary context of a device, which the user's runtime uses too.
class PrimaryContext {
 public:
  // `driver` outlives it.
  explicit PrimaryContext(const CudaDriver& driver) : driver_(driver) {}
  ~PrimaryContext() {
    if (context_ != nullptr) {
      static_cast<void>(driver_.primary_context_release(device_));
    }
  }
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;

  // nullptr before Create.
  CudaDriver::Context get() const { return context_; }
  const CudaDriver& driver() const { return driver_; }

  // After the driver's init.
  Status Create(int ordinal) {
    CudaDriver::Error error = driver_.device_get(&device_, ordinal);
    if (error == CudaDriver::kSuccess) {
      error = driver_.primary_context_retain(&context_, device_);
    }
    if (error == CudaDriver::kSuccess) {
      return Status::Ok();
    }
    context_ = nullptr;
    return {StatusCode::kUnavailable,
            "CUDA: making the context: " + driver_.NameOf(error) +
                "; is the GPU visible to this process, and is there memory "
                "left on it (nvidia-smi, CUDA_VISIBLE_DEVICES)? After fork() "
                "CUDA cannot be used without exec"};
  }

  // Leaves it retained for ever.
  void GiveUp() { context_ = nullptr; }

 private:
  const CudaDriver& driver_;
  CudaDriver::Device device_ = 0;
  CudaDriver::Context context_ = nullptr;
};

// Makes a context current, and what was before again at the end: the thread may
// be the user's. Not by cuCtxSetCurrent, which would lose a stack of contexts.
//
// Meanwhile the thread's mode of capture is relaxed: while any thread of the
// process captures a graph in global mode, calls such as cuEventQuery would
// else fail, and would invalidate that thread's capture.
class ScopedContext {
 public:
  explicit ScopedContext(const PrimaryContext& context)
      : driver_(context.driver()),
        error_(context.get() == nullptr ? CudaDriver::kInvalidContext
                                        : driver_.context_push(context.get())) {
    relaxed_ = error_ == CudaDriver::kSuccess &&
               driver_.exchange_capture_mode(&mode_) == CudaDriver::kSuccess;
  }
  ~ScopedContext() {
    if (relaxed_) {
      static_cast<void>(driver_.exchange_capture_mode(&mode_));
    }
    CudaDriver::Context context = nullptr;
    if (error_ == CudaDriver::kSuccess) {
      static_cast<void>(driver_.context_pop(&context));
    }
  }
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;

  CudaDriver::Error error() const { return error_; }

 private:
  const CudaDriver& driver_;
  const CudaDriver::Error error_;
  int mode_ = CudaDriver::kCaptureModeRelaxed;  // later the one to go back to
  bool relaxed_ = false;
};

}  // namespace ringpipe

#endif  // RINGPIPE_CUDA_CUDA_CONTEXT_H_
