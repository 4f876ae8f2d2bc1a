// The CUDA driver (libcuda.so.1), loaded at run time: all that ringpipe uses of
// CUDA. Not the runtime (libcudart): that one makes contexts on devices that
// nobody chose, keeps the caller's last error, which is the user's to read, and
// has to be no newer than the driver.
//
// No header of CUDA's: this is the driver's stable binary interface, so that a
// build without the toolkit supports GPUs too. cuda_driver_abi_test compares it
// with cuda.h where the toolkit is.
#ifndef RINGPIPE_CUDA_CUDA_DRIVER_H_
#define RINGPIPE_CUDA_CUDA_DRIVER_H_

#include <cstddef>
#include <memory>
#include <string>

#include "base/status.h"

// F(member, name, symbol, parameters): each returns an Error. `symbol` is what
// cuda.h of CUDA 12.0 makes of `name`, as #define cuMemFree cuMemFree_v2.
#define RINGPIPE_CUDA_FUNCTIONS(F)                                             \
  F(init, cuInit, cuInit, (unsigned flags))                                    \
  F(driver_get_version, cuDriverGetVersion, cuDriverGetVersion,                \
    (int* version))                                                            \
  F(get_error_name, cuGetErrorName, cuGetErrorName,                            \
    (Error error, const char** name))                                          \
  F(get_error_string, cuGetErrorString, cuGetErrorString,                      \
    (Error error, const char** text))                                          \
  F(device_get_count, cuDeviceGetCount, cuDeviceGetCount, (int* count))        \
  F(device_get, cuDeviceGet, cuDeviceGet, (Device * device, int ordinal))      \
  F(device_get_name, cuDeviceGetName, cuDeviceGetName,                         \
    (char* name, int length, Device device))                                   \
  F(device_get_uuid, cuDeviceGetUuid, cuDeviceGetUuid,                         \
    (void* sixteen_bytes, Device device))                                      \
  F(device_get_attribute, cuDeviceGetAttribute, cuDeviceGetAttribute,          \
    (int* value, int attribute, Device device))                                \
  F(primary_context_retain, cuDevicePrimaryCtxRetain,                          \
    cuDevicePrimaryCtxRetain, (Context * context, Device device))              \
  F(primary_context_release, cuDevicePrimaryCtxRelease,                        \
    cuDevicePrimaryCtxRelease_v2, (Device device))                             \
  F(primary_context_get_state, cuDevicePrimaryCtxGetState,                     \
    cuDevicePrimaryCtxGetState, (Device device, unsigned* flags, int* active)) \
  F(context_push, cuCtxPushCurrent, cuCtxPushCurrent_v2, (Context context))    \
  F(context_pop, cuCtxPopCurrent, cuCtxPopCurrent_v2, (Context * context))     \
  F(context_get_device, cuCtxGetDevice, cuCtxGetDevice, (Device * device))     \
  F(context_get_stream_priority_range, cuCtxGetStreamPriorityRange,            \
    cuCtxGetStreamPriorityRange, (int* least, int* greatest))                  \
  F(exchange_capture_mode, cuThreadExchangeStreamCaptureMode,                  \
    cuThreadExchangeStreamCaptureMode, (int* mode))                            \
  F(stream_create, cuStreamCreateWithPriority, cuStreamCreateWithPriority,     \
    (Stream * stream, unsigned flags, int priority))                           \
  F(stream_destroy, cuStreamDestroy, cuStreamDestroy_v2, (Stream stream))      \
  F(stream_is_capturing, cuStreamIsCapturing, cuStreamIsCapturing,             \
    (Stream stream, int* status))                                              \
  F(event_create, cuEventCreate, cuEventCreate,                                \
    (Event * event, unsigned flags))                                           \
  F(event_destroy, cuEventDestroy, cuEventDestroy_v2, (Event event))           \
  F(event_record, cuEventRecord, cuEventRecord, (Event event, Stream stream))  \
  F(event_query, cuEventQuery, cuEventQuery, (Event event))                    \
  F(pointer_get_attributes, cuPointerGetAttributes, cuPointerGetAttributes,    \
    (unsigned count, int* attributes, void** values, Pointer pointer))         \
  F(host_register, cuMemHostRegister, cuMemHostRegister_v2,                    \
    (void* memory, std::size_t bytes, unsigned flags))                         \
  F(host_unregister, cuMemHostUnregister, cuMemHostUnregister, (void* memory)) \
  F(host_get_device_pointer, cuMemHostGetDevicePointer,                        \
    cuMemHostGetDevicePointer_v2,                                              \
    (Pointer * pointer, void* memory, unsigned flags))                         \
  F(memcpy_async, cuMemcpyAsync, cuMemcpyAsync,                                \
    (Pointer target, Pointer source, std::size_t bytes, Stream stream))        \
  F(module_load, cuModuleLoadData, cuModuleLoadData,                           \
    (Module * module, const void* image))                                      \
  F(module_unload, cuModuleUnload, cuModuleUnload, (Module module))            \
  F(module_get_function, cuModuleGetFunction, cuModuleGetFunction,             \
    (Function * function, Module module, const char* name))                    \
  F(launch_kernel, cuLaunchKernel, cuLaunchKernel,                             \
    (Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,     \
     unsigned block_x, unsigned block_y, unsigned block_z,                     \
     unsigned shared_bytes, Stream stream, void** parameters, void** extra))

namespace ringpipe {

struct CudaDriver {
  // CUresult, CUdeviceptr, CUdevice, CUcontext, ..., as the ABI has them.
  using Error = int;
  using Pointer = unsigned long long;
  using Device = int;
  using Context = void*;
  using Stream = void*;
  using Event = void*;
  using Module = void*;
  using Function = void*;

  static constexpr Error kSuccess = 0;
  static constexpr Error kInvalidValue = 1;
  static constexpr Error kOutOfMemory = 2;
  static constexpr Error kNotInitialized = 3;
  static constexpr Error kDeinitialized = 4;
  static constexpr Error kDevicesUnavailable = 46;
  static constexpr Error kNoDevice = 100;
  static constexpr Error kInvalidContext = 201;
  static constexpr Error kNoBinaryForGpu = 209;
  static constexpr Error kInvalidPtx = 218;
  static constexpr Error kUnsupportedPtxVersion = 222;
  static constexpr Error kJitCompilerNotFound = 221;
  static constexpr Error kOperatingSystem = 304;
  static constexpr Error kInvalidHandle = 400;
  static constexpr Error kNotReady = 600;
  static constexpr Error kIllegalAddress = 700;
  static constexpr Error kHostMemoryAlreadyRegistered = 712;
  static constexpr Error kHostMemoryNotRegistered = 713;
  static constexpr Error kNotPermitted = 800;
  static constexpr Error kNotSupported = 801;
  static constexpr Error kSystemNotReady = 802;
  static constexpr Error kSystemDriverMismatch = 803;
  static constexpr Error kCompatNotSupported = 804;
  static constexpr Error kStreamCaptureUnsupported = 900;
  static constexpr Error kStreamCaptureImplicit = 906;

  // CU_POINTER_ATTRIBUTE_...
  static constexpr int kContext = 1;
  static constexpr int kMemoryType = 2;
  static constexpr int kIsManaged = 8;
  static constexpr int kDeviceOrdinal = 9;
  static constexpr unsigned kMemoryTypeDevice = 2;  // CU_MEMORYTYPE_DEVICE

  // CU_DEVICE_ATTRIBUTE_...
  static constexpr int kMultiprocessorCount = 16;
  static constexpr int kCanMapHostMemory = 19;
  static constexpr int kComputeMode = 20;
  static constexpr int kComputeCapabilityMajor = 75;
  static constexpr int kComputeCapabilityMinor = 76;

  // CU_COMPUTEMODE_...
  static constexpr int kComputeModeProhibited = 2;
  static constexpr int kComputeModeExclusiveProcess = 3;

  static constexpr unsigned kStreamNonBlocking = 1;
  static constexpr unsigned kEventDisableTiming = 2;
  static constexpr unsigned kHostRegisterPortable = 1;
  static constexpr unsigned kHostRegisterDeviceMap = 2;
  static constexpr int kCaptureModeRelaxed = 2;

#define RINGPIPE_CUDA_MEMBER(member, name, symbol, parameters) \
  Error(*member) parameters = nullptr;
  RINGPIPE_CUDA_FUNCTIONS(RINGPIPE_CUDA_MEMBER)
#undef RINGPIPE_CUDA_MEMBER

  // Loads the library; calls nothing in it but cuGetProcAddress. kUnavailable,
  // with advice, where there is none or it lacks a function.
  static Result<CudaDriver> Load();

  // Whether somebody in this process has loaded it; loads nothing. Takes 50 us.
  static bool Loaded();

  // A function that is not in the table; nullptr where there is none. `symbol`
  // is used where the driver has no cuGetProcAddress (before CUDA 12.0).
  static void* Find(const char* name, const char* symbol);

  // "CUDA_ERROR_NO_DEVICE (100)".
  std::string NameOf(Error error) const;
};

// CreateCudaAccelerator() with this driver, for tests.
class Accelerator;
Result<std::unique_ptr<Accelerator>> CreateCudaAccelerator(
    const CudaDriver& driver);

}  // namespace ringpipe

#endif  // RINGPIPE_CUDA_CUDA_DRIVER_H_
