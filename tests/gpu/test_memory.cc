#include "tests/gpu/test_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "cuda/test_device.h"

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

class CudaDeviceMemory final : public TestMemory {
 public:
  explicit CudaDeviceMemory(std::unique_ptr<TestDevice> device)
      : device_(std::move(device)) {}

  Result<void*> Allocate(std::size_t bytes) override {
    return device_->Allocate(bytes);
  }
  void Free(void* memory) override { device_->Free(memory); }
  Status Write(void* memory, const void* host, std::size_t bytes) override {
    return device_->Copy(memory, host, bytes);
  }
  Status Read(void* host, const void* memory, std::size_t bytes) override {
    return device_->Copy(host, memory, bytes);
  }

 private:
  const std::unique_ptr<TestDevice> device_;
};

}  // namespace

Result<std::unique_ptr<TestMemory>> TestMemory::Create(
    const std::string& kind) {
  if (kind == "host") {
    return std::unique_ptr<TestMemory>(new HostMemory);
  }
  if (kind == "cuda") {
    RINGPIPE_ASSIGN_OR_RETURN(auto device, TestDevice::Open());
    return std::unique_ptr<TestMemory>(new CudaDeviceMemory(std::move(device)));
  }
  return Status(StatusCode::kInvalidArgument,
                "no memory of kind \"" + kind + "\"");
}

}  // namespace ringpipe::testing
