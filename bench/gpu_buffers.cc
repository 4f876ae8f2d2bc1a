#include "bench/gpu_buffers.h"

#include <algorithm>
#include <string>

#include "cuda/cuda_driver.h"

namespace ringpipe {
namespace {

Result<int> CountGpus() {
  RINGPIPE_ASSIGN_OR_RETURN(const CudaDriver driver, CudaDriver::Load());
  int count = 0;
  CudaDriver::Error error = driver.init(0);
  if (error == CudaDriver::kSuccess) {
    error = driver.device_get_count(&count);
  }
  if (error == CudaDriver::kSuccess && count > 0) {
    return count;
  }
  return Status(
      StatusCode::kUnavailable,
      "no GPU: " +
          driver.NameOf(error == CudaDriver::kSuccess ? CudaDriver::kNoDevice
                                                      : error) +
          "; is one visible to this process (nvidia-smi, "
          "CUDA_VISIBLE_DEVICES)?");
}

}  // namespace

Result<std::unique_ptr<GpuBuffers>> GpuBuffers::Create(MemoryPlace place,
                                                       int number) {
  RINGPIPE_ASSIGN_OR_RETURN(const int gpus, CountGpus());
  RINGPIPE_ASSIGN_OR_RETURN(auto device, TestDevice::Open(number % gpus));
  return std::unique_ptr<GpuBuffers>(new GpuBuffers(place, std::move(device)));
}

Result<void*> GpuBuffers::Allocate(std::size_t bytes) {
  RINGPIPE_ASSIGN_OR_RETURN(void* const buffer,
                            place_ == MemoryPlace::kManaged
                                ? device_->AllocateManaged(bytes)
                                : device_->Allocate(bytes));
  buffers_.push_back(buffer);
  return buffer;
}

Status GpuBuffers::Copy(void* target, const void* source,
                        std::size_t bytes) const {
  return device_->Copy(target, source, bytes);
}

void GpuBuffers::Free() {
  for (void* const buffer : buffers_) {
    device_->Free(buffer);
  }
  buffers_.clear();
}

}  // namespace ringpipe
