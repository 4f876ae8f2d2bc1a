// The binary interface of libcuda.so.1, as far as it is faked: types, numbers
// and the list of functions. Without cuda.h, so that it builds without the
// toolkit; abi_test compares it with cuda.h where that is.
#ifndef RINGPIPE_CUDA_FAKE_DRIVER_ABI_H_
#define RINGPIPE_CUDA_FAKE_DRIVER_ABI_H_

#include <cstddef>
#include <cstdint>

namespace fake_cuda {

using Result = int;                  // CUresult
using Address = unsigned long long;  // CUdeviceptr
using Device = int;                  // CUdevice

struct Context;   // CUcontext points to one
struct Stream;    // CUstream
struct Event;     // CUevent
struct Module;    // CUmodule
struct Function;  // CUfunction
struct Graph;     // CUgraph
struct Pool;      // CUmemoryPool

using HostFunction = void (*)(void* argument);  // CUhostFn

// CUDA_SUCCESS, CUDA_ERROR_...
inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNotInitialized = 3;
inline constexpr Result kNoDevice = 100;
inline constexpr Result kInvalidDevice = 101;
inline constexpr Result kInvalidContext = 201;
inline constexpr Result kInvalidPtx = 218;
inline constexpr Result kInvalidHandle = 400;
inline constexpr Result kNotFound = 500;
inline constexpr Result kNotReady = 600;
inline constexpr Result kIllegalAddress = 700;
inline constexpr Result kHostMemoryAlreadyRegistered = 712;
inline constexpr Result kHostMemoryNotRegistered = 713;
inline constexpr Result kIllegalInstruction = 715;
inline constexpr Result kMisalignedAddress = 716;
inline constexpr Result kLaunchFailed = 719;
inline constexpr Result kNotSupported = 801;
inline constexpr Result kCaptureUnsupported = 900;
inline constexpr Result kCaptureInvalidated = 901;
inline constexpr Result kCaptureMerge = 902;
inline constexpr Result kCaptureUnmatched = 903;
inline constexpr Result kCaptureUnjoined = 904;
inline constexpr Result kCaptureIsolation = 905;
inline constexpr Result kCaptureImplicit = 906;
inline constexpr Result kCapturedEvent = 907;
inline constexpr Result kCaptureWrongThread = 908;

// CU_STREAM_CAPTURE_MODE_...
inline constexpr int kCaptureGlobal = 0;
inline constexpr int kCaptureThreadLocal = 1;
inline constexpr int kCaptureRelaxed = 2;

// CU_STREAM_CAPTURE_STATUS_...
inline constexpr int kNotCapturing = 0;
inline constexpr int kCapturing = 1;
inline constexpr int kCaptureWasInvalidated = 2;

// CU_POINTER_ATTRIBUTE_...
inline constexpr int kPointerContext = 1;
inline constexpr int kPointerMemoryType = 2;
inline constexpr int kPointerDevicePointer = 3;
inline constexpr int kPointerHostPointer = 4;
inline constexpr int kPointerIsManaged = 8;
inline constexpr int kPointerDeviceOrdinal = 9;
inline constexpr int kPointerRangeStart = 11;
inline constexpr int kPointerRangeSize = 12;
inline constexpr int kPointerMapped = 13;
inline constexpr int kPointerPool = 17;

// CU_MEMORYTYPE_...
inline constexpr unsigned kMemoryHost = 1;
inline constexpr unsigned kMemoryDevice = 2;

// CU_DEVICE_ATTRIBUTE_...
inline constexpr int kMaxThreadsPerBlock = 1;
inline constexpr int kMultiprocessorCount = 16;
inline constexpr int kCanMapHostMemory = 19;
inline constexpr int kComputeMode = 20;
inline constexpr int kAsyncEngineCount = 40;
inline constexpr int kUnifiedAddressing = 41;
inline constexpr int kComputeCapabilityMajor = 75;
inline constexpr int kComputeCapabilityMinor = 76;
inline constexpr int kStreamPrioritiesSupported = 78;
inline constexpr int kManagedMemory = 83;
inline constexpr int kConcurrentManagedAccess = 89;
inline constexpr int kCanUseHostPointerForRegistered = 91;
inline constexpr int kVirtualMemoryManagement = 102;
inline constexpr int kMemoryPoolsSupported = 115;

inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kHostRegisterDeviceMap = 2;
inline constexpr unsigned kAttachGlobal = 1;

// CUmemAllocationProp, and what of it the fake reads.
struct AllocationProperties {
  int type;  // 1: pinned
  int handle_types;
  struct {
    int type;  // 1: a device
    int id;
  } location;
  void* win32;
  unsigned char flags[8];
};

// CUmemAccessDesc.
struct AccessDescription {
  struct {
    int type;
    int id;
  } location;
  int flags;  // 3: read and write
};

}  // namespace fake_cuda

// F(name, symbol, parameters): each returns a Result. `symbol` is what the
// library exports, and cuda.h makes of `name`, for programs of CUDA 12.0.
#define FAKE_CUDA_FUNCTIONS(F)                                                 \
  F(cuInit, cuInit, (unsigned flags))                                          \
  F(cuDriverGetVersion, cuDriverGetVersion, (int* version))                    \
  F(cuGetErrorName, cuGetErrorName, (Result error, const char** name))         \
  F(cuGetErrorString, cuGetErrorString, (Result error, const char** text))     \
  F(cuGetProcAddress, cuGetProcAddress_v2,                                     \
    (const char* name, void** function, int version, std::uint64_t flags,      \
     int* status))                                                             \
  F(cuDeviceGetCount, cuDeviceGetCount, (int* count))                          \
  F(cuDeviceGet, cuDeviceGet, (Device * device, int ordinal))                  \
  F(cuDeviceGetName, cuDeviceGetName, (char* name, int length, Device device)) \
  F(cuDeviceGetUuid, cuDeviceGetUuid, (void* sixteen_bytes, Device device))    \
  F(cuDeviceTotalMem, cuDeviceTotalMem_v2,                                     \
    (std::size_t * bytes, Device device))                                      \
  F(cuDeviceGetAttribute, cuDeviceGetAttribute,                                \
    (int* value, int attribute, Device device))                                \
  F(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool,                      \
    (Pool * *pool, Device device))                                             \
  F(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain,                        \
    (Context * *context, Device device))                                       \
  F(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (Device device))  \
  F(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState,                    \
    (Device device, unsigned* flags, int* active))                             \
  F(cuCtxCreate, cuCtxCreate_v2,                                               \
    (Context * *context, unsigned flags, Device device))                       \
  F(cuCtxDestroy, cuCtxDestroy_v2, (Context * context))                        \
  F(cuCtxPushCurrent, cuCtxPushCurrent_v2, (Context * context))                \
  F(cuCtxPopCurrent, cuCtxPopCurrent_v2, (Context * *context))                 \
  F(cuCtxSetCurrent, cuCtxSetCurrent, (Context * context))                     \
  F(cuCtxGetCurrent, cuCtxGetCurrent, (Context * *context))                    \
  F(cuCtxGetDevice, cuCtxGetDevice, (Device * device))                         \
  F(cuCtxSynchronize, cuCtxSynchronize, ())                                    \
  F(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange,                  \
    (int* least, int* greatest))                                               \
  F(cuMemAlloc, cuMemAlloc_v2, (Address * address, std::size_t bytes))         \
  F(cuMemFree, cuMemFree_v2, (Address address))                                \
  F(cuMemAllocManaged, cuMemAllocManaged,                                      \
    (Address * address, std::size_t bytes, unsigned flags))                    \
  F(cuMemHostAlloc, cuMemHostAlloc,                                            \
    (void** memory, std::size_t bytes, unsigned flags))                        \
  F(cuMemFreeHost, cuMemFreeHost, (void* memory))                              \
  F(cuMemHostRegister, cuMemHostRegister_v2,                                   \
    (void* memory, std::size_t bytes, unsigned flags))                         \
  F(cuMemHostUnregister, cuMemHostUnregister, (void* memory))                  \
  F(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2,                   \
    (Address * address, void* memory, unsigned flags))                         \
  F(cuMemGetAddressRange, cuMemGetAddressRange_v2,                             \
    (Address * begin, std::size_t * bytes, Address address))                   \
  F(cuMemAllocAsync, cuMemAllocAsync,                                          \
    (Address * address, std::size_t bytes, Stream * stream))                   \
  F(cuMemFreeAsync, cuMemFreeAsync, (Address address, Stream * stream))        \
  F(cuMemAddressReserve, cuMemAddressReserve,                                  \
    (Address * address, std::size_t bytes, std::size_t alignment,              \
     Address wanted, unsigned long long flags))                                \
  F(cuMemAddressFree, cuMemAddressFree, (Address address, std::size_t bytes))  \
  F(cuMemCreate, cuMemCreate,                                                  \
    (unsigned long long* handle, std::size_t bytes,                            \
     const AllocationProperties* properties, unsigned long long flags))        \
  F(cuMemRelease, cuMemRelease, (unsigned long long handle))                   \
  F(cuMemMap, cuMemMap,                                                        \
    (Address address, std::size_t bytes, std::size_t offset,                   \
     unsigned long long handle, unsigned long long flags))                     \
  F(cuMemUnmap, cuMemUnmap, (Address address, std::size_t bytes))              \
  F(cuMemSetAccess, cuMemSetAccess,                                            \
    (Address address, std::size_t bytes, const AccessDescription* access,      \
     std::size_t count))                                                       \
  F(cuPointerGetAttributes, cuPointerGetAttributes,                            \
    (unsigned count, int* attributes, void** values, Address address))         \
  F(cuPointerGetAttribute, cuPointerGetAttribute,                              \
    (void* value, int attribute, Address address))                             \
  F(cuMemcpy, cuMemcpy, (Address target, Address source, std::size_t bytes))   \
  F(cuMemcpyHtoD, cuMemcpyHtoD_v2,                                             \
    (Address target, const void* source, std::size_t bytes))                   \
  F(cuMemcpyDtoH, cuMemcpyDtoH_v2,                                             \
    (void* target, Address source, std::size_t bytes))                         \
  F(cuMemcpyAsync, cuMemcpyAsync,                                              \
    (Address target, Address source, std::size_t bytes, Stream * stream))      \
  F(cuMemsetD8Async, cuMemsetD8Async,                                          \
    (Address target, unsigned char value, std::size_t bytes, Stream* stream))  \
  F(cuStreamCreate, cuStreamCreate, (Stream * *stream, unsigned flags))        \
  F(cuStreamCreateWithPriority, cuStreamCreateWithPriority,                    \
    (Stream * *stream, unsigned flags, int priority))                          \
  F(cuStreamDestroy, cuStreamDestroy_v2, (Stream * stream))                    \
  F(cuStreamGetPriority, cuStreamGetPriority,                                  \
    (Stream * stream, int* priority))                                          \
  F(cuStreamQuery, cuStreamQuery, (Stream * stream))                           \
  F(cuStreamSynchronize, cuStreamSynchronize, (Stream * stream))               \
  F(cuStreamWaitEvent, cuStreamWaitEvent,                                      \
    (Stream * stream, Event * event, unsigned flags))                          \
  F(cuLaunchHostFunc, cuLaunchHostFunc,                                        \
    (Stream * stream, HostFunction function, void* argument))                  \
  F(cuStreamBeginCapture, cuStreamBeginCapture_v2,                             \
    (Stream * stream, int mode))                                               \
  F(cuStreamEndCapture, cuStreamEndCapture, (Stream * stream, Graph * *graph)) \
  F(cuStreamIsCapturing, cuStreamIsCapturing, (Stream * stream, int* status))  \
  F(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode,      \
    (int* mode))                                                               \
  F(cuGraphDestroy, cuGraphDestroy, (Graph * graph))                           \
  F(cuEventCreate, cuEventCreate, (Event * *event, unsigned flags))            \
  F(cuEventDestroy, cuEventDestroy_v2, (Event * event))                        \
  F(cuEventRecord, cuEventRecord, (Event * event, Stream * stream))            \
  F(cuEventQuery, cuEventQuery, (Event * event))                               \
  F(cuEventSynchronize, cuEventSynchronize, (Event * event))                   \
  F(cuModuleLoadData, cuModuleLoadData,                                        \
    (Module * *module_, const void* image))                                    \
  F(cuModuleUnload, cuModuleUnload, (Module * module_))                        \
  F(cuModuleGetFunction, cuModuleGetFunction,                                  \
    (Function * *function, Module * module_, const char* name))                \
  F(cuLaunchKernel, cuLaunchKernel,                                            \
    (Function * function, unsigned grid_x, unsigned grid_y, unsigned grid_z,   \
     unsigned block_x, unsigned block_y, unsigned block_z,                     \
     unsigned shared_bytes, Stream* stream, void** parameters, void** extra))

// What the library exports. (Not called elsewhere: programs look it up.)
#define FAKE_CUDA_ENTRY extern "C" __attribute__((visibility("default")))

#endif  // RINGPIPE_CUDA_FAKE_DRIVER_ABI_H_
