#include "tests/gpu/test_memory.h"

#ifdef RINGPIPE_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace ringpipe::testing {
namespace {

class HostMemory final : public TestMemory {
 public:
  Result<void*> Allocate(std::size_t bytes) override {
    void* const memory = std::malloc(std::max<std::size_t>(bytes, 1));
    if (memory == nullptr) {
      return Status(StatusCode::kResourceExhausted, "malloc: no memory");
    }
    return memory;
  }
  void Free(void* memory) override { std::free(memory); }
  Status Write(void* memory, const void* host, std::size_t bytes) override {
    return Copy(memory, host, bytes);
  }
  Status Read(void* host, const void* memory, std::size_t bytes) override {
    return Copy(host, memory, bytes);
  }

 private:
  static Status Copy(void* target, const void* source, std::size_t bytes) {
    if (bytes > 0) {
      std::memcpy(target, source, bytes);
    }
    return Status::Ok();
  }
};

#ifdef RINGPIPE_WITH_CUDA

Status CudaStatus(const char* what, cudaError_t error) {
  return error == cudaSuccess
             ? Status::Ok()
             : Status(StatusCode::kDeviceError,
                      std::string(what) + ": " + cudaGetErrorString(error));
}

class CudaDeviceMemory final : public TestMemory {
 public:
  Result<void*> Allocate(std::size_t bytes) override {
    void* memory = nullptr;
    RINGPIPE_RETURN_IF_ERROR(CudaStatus(
        "cudaMalloc", cudaMalloc(&memory, std::max<std::size_t>(bytes, 1))));
    return memory;
  }
  void Free(void* memory) override { static_cast<void>(cudaFree(memory)); }
  Status Write(void* memory, const void* host, std::size_t bytes) override {
    RINGPIPE_RETURN_IF_ERROR(
        CudaStatus("cudaMemcpy to the device",
                   cudaMemcpy(memory, host, bytes, cudaMemcpyHostToDevice)));
    // The copy of memory that is not pinned may still be on its way.
    return CudaStatus("cudaDeviceSynchronize", cudaDeviceSynchronize());
  }
  Status Read(void* host, const void* memory, std::size_t bytes) override {
    return CudaStatus("cudaMemcpy to the host",
                      cudaMemcpy(host, memory, bytes, cudaMemcpyDeviceToHost));
  }
};

#endif  // RINGPIPE_WITH_CUDA

}  // namespace

Result<std::unique_ptr<TestMemory>> TestMemory::Create(
    const std::string& kind) {
  if (kind == "host") {
    return std::unique_ptr<TestMemory>(new HostMemory);
  }
#ifdef RINGPIPE_WITH_CUDA
  if (kind == "cuda") {
    return std::unique_ptr<TestMemory>(new CudaDeviceMemory);
  }
#endif
  return Status(StatusCode::kInvalidArgument,
                "no memory of kind \"" + kind + "\" in this build");
}

}  // namespace ringpipe::testing
