#ifndef RINGPIPE_TESTS_GPU_TEST_MEMORY_H_
#define RINGPIPE_TESTS_GPU_TEST_MEMORY_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "base/status.h"

namespace ringpipe::testing {

// Where the buffers of a test are: the first CUDA device's memory, or, to try
// the test itself where there is none, the host's.
class TestMemory {
 public:
  // "cuda" or "host".
  static Result<std::unique_ptr<TestMemory>> Create(const std::string& kind);

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
