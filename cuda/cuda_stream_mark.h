#ifndef RINGPIPE_CUDA_CUDA_STREAM_MARK_H_
#define RINGPIPE_CUDA_CUDA_STREAM_MARK_H_

#include "base/status.h"
#include "cuda/accelerator.h"
#include "cuda/cuda_context.h"
#include "cuda/cuda_driver.h"

namespace ringpipe {

// An event in a stream of the caller's.
class CudaStreamMark final : public StreamMark {
 public:
  // `driver`, which has been loaded, outlives it.
  explicit CudaStreamMark(const CudaDriver& driver)
      : driver_(driver), context_(driver) {}
  ~CudaStreamMark() override;

  // Accelerator::Mark, of the device's primary context: that of the runtime. In
  // the mode of capture of ScopedContext, so that no other thread's capture is
  // harmed. Once.
  Status Record(int device, CudaDriver::Stream stream);

  Result<bool> Passed() override;

 private:
  const CudaDriver& driver_;
  PrimaryContext context_;
  CudaDriver::Event event_ = nullptr;
};

}  // namespace ringpipe

#endif  // RINGPIPE_CUDA_CUDA_STREAM_MARK_H_
