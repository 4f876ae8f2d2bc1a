// A GPU as tests and benchmarks use it: what of the driver the product does not
// need. It is the real driver, or the fake one (fake_driver/).
#ifndef RINGPIPE_CUDA_TEST_DEVICE_H_
#define RINGPIPE_CUDA_TEST_DEVICE_H_

#include <cstddef>
#include <memory>
#include <string>

#include "base/status.h"
#include "cuda/cuda_driver.h"

// As RINGPIPE_CUDA_FUNCTIONS.
#define RINGPIPE_CUDA_TEST_FUNCTIONS(F)                                        \
  F(device_total_memory, cuDeviceTotalMem, cuDeviceTotalMem_v2,                \
    (std::size_t * bytes, CudaDriver::Device device))                          \
  F(context_create, cuCtxCreate, cuCtxCreate_v2,                               \
    (CudaDriver::Context * context, unsigned flags,                            \
     CudaDriver::Device device))                                               \
  F(context_destroy, cuCtxDestroy, cuCtxDestroy_v2,                            \
    (CudaDriver::Context context))                                             \
  F(context_get_current, cuCtxGetCurrent, cuCtxGetCurrent,                     \
    (CudaDriver::Context * context))                                           \
  F(context_set_current, cuCtxSetCurrent, cuCtxSetCurrent,                     \
    (CudaDriver::Context context))                                             \
  F(context_synchronize, cuCtxSynchronize, cuCtxSynchronize, ())               \
  F(memory_allocate, cuMemAlloc, cuMemAlloc_v2,                                \
    (CudaDriver::Pointer * pointer, std::size_t bytes))                        \
  F(memory_free, cuMemFree, cuMemFree_v2, (CudaDriver::Pointer pointer))       \
  F(memory_allocate_managed, cuMemAllocManaged, cuMemAllocManaged,             \
    (CudaDriver::Pointer * pointer, std::size_t bytes, unsigned flags))        \
  F(memory_allocate_host, cuMemHostAlloc, cuMemHostAlloc,                      \
    (void** memory, std::size_t bytes, unsigned flags))                        \
  F(memory_free_host, cuMemFreeHost, cuMemFreeHost, (void* memory))            \
  F(memory_allocate_async, cuMemAllocAsync, cuMemAllocAsync,                   \
    (CudaDriver::Pointer * pointer, std::size_t bytes,                         \
     CudaDriver::Stream stream))                                               \
  F(memory_free_async, cuMemFreeAsync, cuMemFreeAsync,                         \
    (CudaDriver::Pointer pointer, CudaDriver::Stream stream))                  \
  F(address_reserve, cuMemAddressReserve, cuMemAddressReserve,                 \
    (CudaDriver::Pointer * pointer, std::size_t bytes, std::size_t alignment,  \
     CudaDriver::Pointer wanted, unsigned long long flags))                    \
  F(address_free, cuMemAddressFree, cuMemAddressFree,                          \
    (CudaDriver::Pointer pointer, std::size_t bytes))                          \
  F(physical_create, cuMemCreate, cuMemCreate,                                 \
    (unsigned long long* handle, std::size_t bytes,                            \
     const AllocationProperties* properties, unsigned long long flags))        \
  F(physical_release, cuMemRelease, cuMemRelease, (unsigned long long handle)) \
  F(memory_map, cuMemMap, cuMemMap,                                            \
    (CudaDriver::Pointer pointer, std::size_t bytes, std::size_t offset,       \
     unsigned long long handle, unsigned long long flags))                     \
  F(memory_unmap, cuMemUnmap, cuMemUnmap,                                      \
    (CudaDriver::Pointer pointer, std::size_t bytes))                          \
  F(memory_set_access, cuMemSetAccess, cuMemSetAccess,                         \
    (CudaDriver::Pointer pointer, std::size_t bytes,                           \
     const AccessDescription* access, std::size_t count))                      \
  F(memory_copy, cuMemcpy, cuMemcpy,                                           \
    (CudaDriver::Pointer target, CudaDriver::Pointer source,                   \
     std::size_t bytes))                                                       \
  F(stream_synchronize, cuStreamSynchronize, cuStreamSynchronize,              \
    (CudaDriver::Stream stream))                                               \
  F(stream_get_priority, cuStreamGetPriority, cuStreamGetPriority,             \
    (CudaDriver::Stream stream, int* priority))                                \
  F(stream_wait_event, cuStreamWaitEvent, cuStreamWaitEvent,                   \
    (CudaDriver::Stream stream, CudaDriver::Event event, unsigned flags))      \
  F(launch_host_function, cuLaunchHostFunc, cuLaunchHostFunc,                  \
    (CudaDriver::Stream stream, void (*function)(void*), void* argument))      \
  F(begin_capture, cuStreamBeginCapture, cuStreamBeginCapture_v2,              \
    (CudaDriver::Stream stream, int mode))                                     \
  F(end_capture, cuStreamEndCapture, cuStreamEndCapture,                       \
    (CudaDriver::Stream stream, void** graph))                                 \
  F(graph_destroy, cuGraphDestroy, cuGraphDestroy, (void* graph))

namespace ringpipe {

// CUmemAllocationProp: {1, 0, {1, device}} is pinned memory of a device.
struct AllocationProperties {
  int type;
  int handle_types;
  struct {
    int type;
    int id;
  } location;
  void* win32;
  unsigned char flags[8];
};

// CUmemAccessDesc: {{1, device}, 3} lets a device read and write.
struct AccessDescription {
  struct {
    int type;
    int id;
  } location;
  int flags;
};

// The primary context of a device, retained, and current on the thread that
// opened it; what was current there before comes back at the end.
class TestDevice {
 public:
  // kUnavailable where there is no driver or no such device.
  static Result<std::unique_ptr<TestDevice>> Open(int ordinal = 0);
  ~TestDevice();
  TestDevice(const TestDevice&) = delete;
  TestDevice& operator=(const TestDevice&) = delete;

  const CudaDriver& driver() const { return driver_; }
  CudaDriver::Context context() const { return context_; }

#define RINGPIPE_CUDA_TEST_MEMBER(member, name, symbol, parameters) \
  CudaDriver::Error(*member) parameters = nullptr;
  RINGPIPE_CUDA_TEST_FUNCTIONS(RINGPIPE_CUDA_TEST_MEMBER)
#undef RINGPIPE_CUDA_TEST_MEMBER

  // On a thread that has no context.
  void MakeCurrent() const;

  // Device memory; of the context that is current.
  Result<void*> Allocate(std::size_t bytes) const;
  Result<void*> AllocateManaged(std::size_t bytes) const;
  void Free(void* memory) const;
  // Done when they return, whichever stream looks; from and to any memory.
  Status Copy(void* target, const void* source, std::size_t bytes) const;

  // "NVIDIA H100 (compute capability 9.0, 80 GiB), CUDA 13.0 of the driver".
  std::string Describe() const;

  Status Check(const std::string& what, CudaDriver::Error error) const;

 private:
  explicit TestDevice(const CudaDriver& driver) : driver_(driver) {}
  Status FindFunctions();
  Status Retain(int ordinal);

  const CudaDriver driver_;
  CudaDriver::Device device_ = 0;
  CudaDriver::Context context_ = nullptr;
};

}  // namespace ringpipe

#endif  // RINGPIPE_CUDA_TEST_DEVICE_H_
