#include "tests/gpu/test_memory.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "cuda/test_device.h"

namespace ringpipe::testing {
namespace {

class PageableMemory final : public TestMemory {
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

// What the driver allocates.
class CudaTestMemory final : public TestMemory {
 public:
  CudaTestMemory(std::unique_ptr<TestDevice> device, MemoryKind kind)
      : device_(std::move(device)), kind_(kind) {}

  Result<void*> Allocate(std::size_t bytes) override {
    const std::size_t some = std::max<std::size_t>(bytes, 1);
    switch (kind_) {
      case MemoryKind::kManaged:
        return device_->AllocateManaged(some);
      case MemoryKind::kPool:
        return AllocateFromPool(some);
      case MemoryKind::kPinned:
        return AllocatePinned(some);
      default:
        return device_->Allocate(some);
    }
  }
  void Free(void* memory) override {
    switch (kind_) {
      case MemoryKind::kPool:
        static_cast<void>(device_->memory_free_async(
            reinterpret_cast<std::uintptr_t>(memory), nullptr));
        break;
      case MemoryKind::kPinned:
        static_cast<void>(device_->memory_free_host(memory));
        break;
      default:
        device_->Free(memory);
    }
  }
  Status Write(void* memory, const void* host, std::size_t bytes) override {
    return device_->Copy(memory, host, bytes);
  }
  Status Read(void* host, const void* memory, std::size_t bytes) override {
    return device_->Copy(host, memory, bytes);
  }

 private:
  // It is there for all streams once its stream is done.
  Result<void*> AllocateFromPool(std::size_t bytes) {
    CudaDriver::Pointer pointer = 0;
    RINGPIPE_RETURN_IF_ERROR(device_->Check(
        "cuMemAllocAsync",
        device_->memory_allocate_async(&pointer, bytes, nullptr)));
    RINGPIPE_RETURN_IF_ERROR(device_->Check(
        "cuStreamSynchronize", device_->stream_synchronize(nullptr)));
    return reinterpret_cast<void*>(pointer);
  }
  Result<void*> AllocatePinned(std::size_t bytes) {
    void* memory = nullptr;
    RINGPIPE_RETURN_IF_ERROR(device_->Check(
        "cuMemHostAlloc", device_->memory_allocate_host(&memory, bytes, 0)));
    return memory;
  }

  const std::unique_ptr<TestDevice> device_;
  const MemoryKind kind_;
};

}  // namespace

std::string_view Name(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kDevice:
      return "device";
    case MemoryKind::kManaged:
      return "managed";
    case MemoryKind::kPool:
      return "pool";
    case MemoryKind::kPinned:
      return "pinned";
    case MemoryKind::kPageable:
      return "pageable";
  }
  return "no";
}

Result<std::unique_ptr<TestMemory>> TestMemory::Create(MemoryKind kind) {
  if (kind == MemoryKind::kPageable) {
    return std::unique_ptr<TestMemory>(new PageableMemory);
  }
  RINGPIPE_ASSIGN_OR_RETURN(auto device, TestDevice::Open());
  return std::unique_ptr<TestMemory>(
      new CudaTestMemory(std::move(device), kind));
}

}  // namespace ringpipe::testing
