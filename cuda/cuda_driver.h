// The few functions of the CUDA driver that ringpipe calls itself, beside the
// runtime's, and why it has to:
//
// - To ask whose memory a pointer is. Of the runtime's cudaPointerGetAttributes
//   the manual says that it may initialise the runtime, which can make a
//   context on the current device, GPU 0 as a rule: eight ranks on host memory
//   would put eight contexts there. The driver makes no context by itself.
//   Before somebody has initialised it, its functions (but cuInit) return
//   CUDA_ERROR_NOT_INITIALIZED; and memory of a device cannot exist then.
// - To make a device current for a while. cudaSetDevice makes that device's
//   context, also when it goes back to a device that was merely the default.
//   Pushing and popping the primary context changes nothing else, and the
//   runtime works on whatever context is current.
//
// No header of CUDA's: this is the driver's stable binary interface, which a
// build without the toolkit can test too.
#ifndef RINGPIPE_CUDA_CUDA_DRIVER_H_
#define RINGPIPE_CUDA_CUDA_DRIVER_H_

#include <memory>
#include <string>

#include "base/status.h"

namespace ringpipe {

struct CudaDriver {
  // CUresult, CUcontext, CUdevice and CUpointer_attribute, as the ABI has them.
  using Error = int;
  using Context = void*;
  using Device = int;

  static constexpr Error kSuccess = 0;
  static constexpr Error kInvalidValue = 1;
  static constexpr Error kNotInitialized = 3;
  static constexpr Error kDeinitialized = 4;
  static constexpr Error kInvalidContext = 201;

  static constexpr int kMemoryType = 2;
  static constexpr int kIsManaged = 8;
  static constexpr int kDeviceOrdinal = 9;
  static constexpr unsigned kMemoryTypeDevice = 2;

  Error (*init)(unsigned flags) = nullptr;
  Error (*pointer_get_attributes)(unsigned count, int* attributes,
                                  void** values,
                                  unsigned long long pointer) = nullptr;
  Error (*device_get)(Device* device, int ordinal) = nullptr;
  Error (*primary_context_retain)(Context* context, Device device) = nullptr;
  Error (*primary_context_release)(Device device) = nullptr;
  Error (*context_push)(Context context) = nullptr;
  Error (*context_pop)(Context* context) = nullptr;
  Error (*get_error_name)(Error error, const char** name) = nullptr;

  // Loads the library; calls nothing in it. kUnavailable, with advice, where
  // there is none or it lacks a function.
  static Result<CudaDriver> Load();

  // "CUDA_ERROR_NO_DEVICE (100)".
  std::string NameOf(Error error) const;
};

// CreateCudaAccelerator() with this driver, for tests.
class Accelerator;
Result<std::unique_ptr<Accelerator>> CreateCudaAccelerator(
    const CudaDriver& driver);

}  // namespace ringpipe

#endif  // RINGPIPE_CUDA_CUDA_DRIVER_H_
