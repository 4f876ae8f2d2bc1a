// Functions, numbers and structures that we state ourselves are those of
// cuda.h.
#include <cuda.h>

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>

#include "cuda/cuda_driver.h"
#include "cuda/fake_driver/abi.h"
#include "cuda/test_device.h"
#include "gtest/gtest.h"

// Later versions no longer declare 12.0's.
extern "C" CUresult CUDAAPI cuCtxCreate_v2(CUcontext* context, unsigned flags,
                                           CUdevice device);

namespace ringpipe {
namespace {

// Whether a value of either type is passed alike: enumerations as integers, any
// pointer as any other.
template <typename A, typename B>
constexpr bool SameArgument() {
  // Where A is a pointer, its size is what is meant.
  // NOLINTNEXTLINE(bugprone-sizeof-expression)
  return sizeof(A) == sizeof(B) &&
         std::is_pointer_v<A> == std::is_pointer_v<B> &&
         (std::is_pointer_v<A> ||
          (!std::is_floating_point_v<A> && !std::is_floating_point_v<B>));
}

template <typename A, typename B>
struct SameFunction : std::false_type {};
template <typename Ra, typename... A, typename Rb, typename... B>
struct SameFunction<Ra(A...), Rb(B...)> {
  static constexpr bool Compare() {
    if constexpr (sizeof...(A) == sizeof...(B)) {
      return SameArgument<Ra, Rb>() && (SameArgument<A, B>() && ...);
    } else {
      return false;
    }
  }
  static constexpr bool value = Compare();
};

static_assert(SameFunction<int(void*, unsigned), CUresult(int*, int)>::value);
static_assert(!SameFunction<int(void*), int(void*, int)>::value);
static_assert(!SameFunction<int(int), int(long)>::value);
static_assert(!SameFunction<int(long), int(void*)>::value);

// What cuda.h's macros make of a name.
#define RINGPIPE_TEXT_OF(name) #name
#define RINGPIPE_TEXT(name) RINGPIPE_TEXT_OF(name)

// cuda.h of later versions gives programs a later one.
constexpr bool GrewLater(std::string_view symbol) {
  return CUDA_VERSION >= 13000 &&
         (symbol == "cuCtxCreate_v2" || symbol == "cuDeviceGetUuid");
}

#define RINGPIPE_CHECK(table, name, symbol, parameters)                       \
  static_assert(SameFunction<int parameters, decltype(symbol)>::value,        \
                table " has other parameters of " #symbol " than cuda.h");    \
  static_assert(                                                              \
      GrewLater(#symbol) || std::string_view(RINGPIPE_TEXT(name)) == #symbol, \
      table " has another symbol of " #name " than cuda.h");

using Error = CudaDriver::Error;
using Pointer = CudaDriver::Pointer;
using Device = CudaDriver::Device;
using Context = CudaDriver::Context;
using Stream = CudaDriver::Stream;
using Event = CudaDriver::Event;
using Module = CudaDriver::Module;
using Function = CudaDriver::Function;
#define RINGPIPE_CHECK_OURS(member, name, symbol, parameters) \
  RINGPIPE_CHECK("the product's table", name, symbol, parameters)
RINGPIPE_CUDA_FUNCTIONS(RINGPIPE_CHECK_OURS)
RINGPIPE_CUDA_TEST_FUNCTIONS(RINGPIPE_CHECK_OURS)

namespace fake {
using fake_cuda::AccessDescription;
using fake_cuda::Address;
using fake_cuda::AllocationProperties;
using fake_cuda::Context;
using fake_cuda::Device;
using fake_cuda::Event;
using fake_cuda::Function;
using fake_cuda::Graph;
using fake_cuda::HostFunction;
using fake_cuda::Module;
using fake_cuda::Pool;
using fake_cuda::Result;
using fake_cuda::Stream;
#define RINGPIPE_CHECK_FAKE(name, symbol, parameters) \
  RINGPIPE_CHECK("the fake driver", name, symbol, parameters)
FAKE_CUDA_FUNCTIONS(RINGPIPE_CHECK_FAKE)
}  // namespace fake

static_assert(CudaDriver::kSuccess == CUDA_SUCCESS);
static_assert(CudaDriver::kInvalidValue == CUDA_ERROR_INVALID_VALUE);
static_assert(CudaDriver::kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(CudaDriver::kNotInitialized == CUDA_ERROR_NOT_INITIALIZED);
static_assert(CudaDriver::kDeinitialized == CUDA_ERROR_DEINITIALIZED);
static_assert(CudaDriver::kDevicesUnavailable == CUDA_ERROR_DEVICE_UNAVAILABLE);
static_assert(CudaDriver::kNoDevice == CUDA_ERROR_NO_DEVICE);
static_assert(CudaDriver::kInvalidContext == CUDA_ERROR_INVALID_CONTEXT);
static_assert(CudaDriver::kNoBinaryForGpu == CUDA_ERROR_NO_BINARY_FOR_GPU);
static_assert(CudaDriver::kInvalidPtx == CUDA_ERROR_INVALID_PTX);
static_assert(CudaDriver::kUnsupportedPtxVersion ==
              CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
static_assert(CudaDriver::kJitCompilerNotFound ==
              CUDA_ERROR_JIT_COMPILER_NOT_FOUND);
static_assert(CudaDriver::kOperatingSystem == CUDA_ERROR_OPERATING_SYSTEM);
static_assert(CudaDriver::kNotReady == CUDA_ERROR_NOT_READY);
static_assert(CudaDriver::kIllegalAddress == CUDA_ERROR_ILLEGAL_ADDRESS);
static_assert(CudaDriver::kHostMemoryAlreadyRegistered ==
              CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
static_assert(CudaDriver::kHostMemoryNotRegistered ==
              CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
static_assert(CudaDriver::kNotPermitted == CUDA_ERROR_NOT_PERMITTED);
static_assert(CudaDriver::kNotSupported == CUDA_ERROR_NOT_SUPPORTED);
static_assert(CudaDriver::kSystemNotReady == CUDA_ERROR_SYSTEM_NOT_READY);
static_assert(CudaDriver::kSystemDriverMismatch ==
              CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
static_assert(CudaDriver::kCompatNotSupported ==
              CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE);
static_assert(CudaDriver::kStreamCaptureUnsupported ==
              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
static_assert(CudaDriver::kContext == CU_POINTER_ATTRIBUTE_CONTEXT);
static_assert(CudaDriver::kMemoryType == CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
static_assert(CudaDriver::kIsManaged == CU_POINTER_ATTRIBUTE_IS_MANAGED);
static_assert(CudaDriver::kDeviceOrdinal ==
              CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
static_assert(CudaDriver::kMemoryTypeDevice == CU_MEMORYTYPE_DEVICE);
static_assert(CudaDriver::kMultiprocessorCount ==
              CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(CudaDriver::kCanMapHostMemory ==
              CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
static_assert(CudaDriver::kComputeMode == CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
static_assert(CudaDriver::kComputeCapabilityMajor ==
              CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(CudaDriver::kComputeCapabilityMinor ==
              CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(CudaDriver::kComputeModeProhibited == CU_COMPUTEMODE_PROHIBITED);
static_assert(CudaDriver::kComputeModeExclusiveProcess ==
              CU_COMPUTEMODE_EXCLUSIVE_PROCESS);
static_assert(CudaDriver::kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(CudaDriver::kEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(CudaDriver::kHostRegisterPortable == CU_MEMHOSTREGISTER_PORTABLE);
static_assert(CudaDriver::kHostRegisterDeviceMap ==
              CU_MEMHOSTREGISTER_DEVICEMAP);
static_assert(CudaDriver::kCaptureModeRelaxed ==
              CU_STREAM_CAPTURE_MODE_RELAXED);

static_assert(fake_cuda::kInvalidDevice == CUDA_ERROR_INVALID_DEVICE);
static_assert(fake_cuda::kInvalidHandle == CUDA_ERROR_INVALID_HANDLE);
static_assert(fake_cuda::kNotFound == CUDA_ERROR_NOT_FOUND);
static_assert(fake_cuda::kIllegalInstruction == CUDA_ERROR_ILLEGAL_INSTRUCTION);
static_assert(fake_cuda::kMisalignedAddress == CUDA_ERROR_MISALIGNED_ADDRESS);
static_assert(fake_cuda::kLaunchFailed == CUDA_ERROR_LAUNCH_FAILED);
static_assert(fake_cuda::kCaptureInvalidated ==
              CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
static_assert(fake_cuda::kCaptureMerge == CUDA_ERROR_STREAM_CAPTURE_MERGE);
static_assert(fake_cuda::kCaptureUnmatched ==
              CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
static_assert(fake_cuda::kCaptureUnjoined ==
              CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
static_assert(fake_cuda::kCaptureIsolation ==
              CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
static_assert(fake_cuda::kCaptureImplicit ==
              CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
static_assert(fake_cuda::kCapturedEvent == CUDA_ERROR_CAPTURED_EVENT);
static_assert(fake_cuda::kCaptureWrongThread ==
              CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
static_assert(fake_cuda::kCaptureGlobal == CU_STREAM_CAPTURE_MODE_GLOBAL);
static_assert(fake_cuda::kCaptureThreadLocal ==
              CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
static_assert(fake_cuda::kCapturing == CU_STREAM_CAPTURE_STATUS_ACTIVE);
static_assert(fake_cuda::kCaptureWasInvalidated ==
              CU_STREAM_CAPTURE_STATUS_INVALIDATED);
static_assert(fake_cuda::kPointerDevicePointer ==
              CU_POINTER_ATTRIBUTE_DEVICE_POINTER);
static_assert(fake_cuda::kPointerHostPointer ==
              CU_POINTER_ATTRIBUTE_HOST_POINTER);
static_assert(fake_cuda::kPointerRangeStart ==
              CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
static_assert(fake_cuda::kPointerRangeSize == CU_POINTER_ATTRIBUTE_RANGE_SIZE);
static_assert(fake_cuda::kPointerMapped == CU_POINTER_ATTRIBUTE_MAPPED);
static_assert(fake_cuda::kPointerPool == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE);
static_assert(fake_cuda::kMemoryHost == CU_MEMORYTYPE_HOST);
static_assert(fake_cuda::kMaxThreadsPerBlock ==
              CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
static_assert(fake_cuda::kComputeMode == CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
static_assert(fake_cuda::kAsyncEngineCount ==
              CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
static_assert(fake_cuda::kUnifiedAddressing ==
              CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
static_assert(fake_cuda::kComputeCapabilityMajor ==
              CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(fake_cuda::kComputeCapabilityMinor ==
              CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(fake_cuda::kStreamPrioritiesSupported ==
              CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED);
static_assert(fake_cuda::kManagedMemory == CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
static_assert(fake_cuda::kConcurrentManagedAccess ==
              CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS);
static_assert(fake_cuda::kCanUseHostPointerForRegistered ==
              CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
static_assert(fake_cuda::kVirtualMemoryManagement ==
              CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
static_assert(fake_cuda::kMemoryPoolsSupported ==
              CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
static_assert(fake_cuda::kAttachGlobal == CU_MEM_ATTACH_GLOBAL);

template <typename Ours>
constexpr bool SameAllocationProperties() {
  return sizeof(Ours) == sizeof(CUmemAllocationProp) &&
         offsetof(Ours, handle_types) ==
             offsetof(CUmemAllocationProp, requestedHandleTypes) &&
         offsetof(Ours, location) == offsetof(CUmemAllocationProp, location);
}
static_assert(SameAllocationProperties<AllocationProperties>());
static_assert(SameAllocationProperties<fake_cuda::AllocationProperties>());
static_assert(sizeof(AccessDescription) == sizeof(CUmemAccessDesc));
static_assert(sizeof(fake_cuda::AccessDescription) == sizeof(CUmemAccessDesc));
static_assert(offsetof(AccessDescription, flags) ==
              offsetof(CUmemAccessDesc, flags));
static_assert(CU_MEM_ALLOCATION_TYPE_PINNED == 1 &&
              CU_MEM_LOCATION_TYPE_DEVICE == 1 &&
              CU_MEM_ACCESS_FLAGS_PROT_READWRITE == 3);

// All else has been compared by compiling this.
TEST(CudaAbiTest, TheFakeDriverHasEveryFunctionOfTheTables) {
  std::set<std::string> faked;
#define RINGPIPE_INSERT(name, symbol, parameters) faked.insert(#symbol);
  FAKE_CUDA_FUNCTIONS(RINGPIPE_INSERT)
#define RINGPIPE_EXPECT(member, name, symbol, parameters) \
  EXPECT_EQ(faked.count(#symbol), 1U) << #symbol;
  RINGPIPE_CUDA_FUNCTIONS(RINGPIPE_EXPECT)
  RINGPIPE_CUDA_TEST_FUNCTIONS(RINGPIPE_EXPECT)
}

}  // namespace
}  // namespace ringpipe
