#ifndef RINGPIPE_TESTS_GPU_TEST_MEMORY_H_
#define RINGPIPE_TESTS_GPU_TEST_MEMORY_H_

#include <array>
#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace ringpipe::testing {

enum class MemoryKind {
  kDevice,   // cuMemAlloc
  kManaged,  // cuMemAllocManaged
  kPool,     // cuMemAllocAsync
  kPinned,   // of the host: cuMemHostAlloc
  kPageable  // of the host: malloc; needs no GPU
};
inline constexpr std::array kMemoryKinds = {
    MemoryKind::kDevice, MemoryKind::kManaged, MemoryKind::kPool,
    MemoryKind::kPinned, MemoryKind::kPageable};

// "device", ...
std::string_view Name(MemoryKind kind);

constexpr bool IsOfHost(MemoryKind kind) {
  return kind == MemoryKind::kPinned || kind == MemoryKind::kPageable;
}

// Where the buffers of a test are: memory of a kind, of the first CUDA device.
class TestMemory {
 public:
  static Result<std::unique_ptr<TestMemory>> Create(MemoryKind kind);

  virtual ~TestMemory() = default;
  virtual Result<void*> Allocate(std::size_t bytes) = 0;
  virtual void Free(void* memory) = 0;
  // Done when they return, whichever stream looks.
  virtual Status Write(void* memory, const void* host, std::size_t bytes) = 0;
  virtual Status Read(void* host, const void* memory, std::size_t bytes) = 0;
};

// One piece of it.
class TestBuffer {
 public:
  static Result<TestBuffer> Create(TestMemory& memory, std::size_t bytes) {
    RINGPIPE_ASSIGN_OR_RETURN(void* const data, memory.Allocate(bytes));
    return TestBuffer(memory, data);
  }
  ~TestBuffer() {
    if (data_ != nullptr) {
      memory_->Free(data_);
    }
  }
  TestBuffer(TestBuffer&& other) noexcept
      : memory_(other.memory_), data_(std::exchange(other.data_, nullptr)) {}
  TestBuffer& operator=(TestBuffer&&) = delete;

  void* data() const { return data_; }

 private:
  TestBuffer(TestMemory& memory, void* data) : memory_(&memory), data_(data) {}

  TestMemory* memory_;
  void* data_;
};

}  // namespace ringpipe::testing

#endif  // RINGPIPE_TESTS_GPU_TEST_MEMORY_H_
