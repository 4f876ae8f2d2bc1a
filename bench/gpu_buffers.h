// A benchmark's buffers in a GPU's memory.
#ifndef RINGPIPE_BENCH_GPU_BUFFERS_H_
#define RINGPIPE_BENCH_GPU_BUFFERS_H_

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "bench/options.h"
#include "cuda/test_device.h"

namespace ringpipe {

// One thread, which has the GPU's primary context current as long as this
// lives. Only Free frees buffers: after a call that failed the GPU may still
// use them, and to free them would wait for it, for ever where it is stuck.
class GpuBuffers {
 public:
  // Of GPU `number`, or that modulo the number of GPUs. `place`: not the host.
  // kUnavailable, with the reason, where there is none.
  static Result<std::unique_ptr<GpuBuffers>> Create(MemoryPlace place,
                                                    int number);
  GpuBuffers(const GpuBuffers&) = delete;
  GpuBuffers& operator=(const GpuBuffers&) = delete;

  Result<void*> Allocate(std::size_t bytes);
  // Between a buffer and memory of the host; it has been done on return.
  Status Copy(void* target, const void* source, std::size_t bytes) const;
  // Once no call uses the buffers any more.
  void Free();

 private:
  GpuBuffers(MemoryPlace place, std::unique_ptr<TestDevice> device)
      : place_(place), device_(std::move(device)) {}

  const MemoryPlace place_;
  const std::unique_ptr<TestDevice> device_;
  std::vector<void*> buffers_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_GPU_BUFFERS_H_
