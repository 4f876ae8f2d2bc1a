// Entry points about devices and contexts.
#include <cstdio>
#include <cstring>

#include "cuda/fake_driver/driver.h"
#include "cuda/fake_driver/entry_points.h"

namespace fake_cuda {
namespace {

constexpr std::size_t kDeviceBytes = std::size_t{1} << 34;
constexpr int kGreatestPriority = -5;

// 9.0, with few multiprocessors: the interpreter runs blocks one after another.
Result AttributeOf(int attribute, int* value) {
  switch (attribute) {
    case kMaxThreadsPerBlock:
      *value = 1024;
      return kSuccess;
    case kMultiprocessorCount:
      *value = 4;
      return kSuccess;
    case kComputeMode:
      *value = Settings::Get().compute_mode;
      return kSuccess;
    case kAsyncEngineCount:
      *value = 2;
      return kSuccess;
    case kComputeCapabilityMajor:
      *value = 9;
      return kSuccess;
    case kComputeCapabilityMinor:
      *value = 0;
      return kSuccess;
    case kCanUseHostPointerForRegistered:
      *value = Settings::Get().same_pointers ? 1 : 0;
      return kSuccess;
    case kCanMapHostMemory:
    case kUnifiedAddressing:
    case kStreamPrioritiesSupported:
    case kManagedMemory:
    case kConcurrentManagedAccess:
    case kVirtualMemoryManagement:
    case kMemoryPoolsSupported:
      *value = 1;
      return kSuccess;
    default:
      return kInvalidValue;
  }
}

}  // namespace

FAKE_CUDA_ENTRY Result cuDeviceGetCount(int* count) {
  FAKE_CUDA_BEGIN("cuDeviceGetCount", kInitialised | kLiving)
  *count = Driver::Get().settings.devices;
  return kSuccess;
}

FAKE_CUDA_ENTRY Result cuDeviceGet(Device* device, int ordinal) {
  FAKE_CUDA_BEGIN("cuDeviceGet", kInitialised | kLiving)
  *device = ordinal;
  return Driver::Get().Knows(ordinal) ? kSuccess : kInvalidDevice;
}

FAKE_CUDA_ENTRY Result cuDeviceGetName(char* name, int length, Device device) {
  FAKE_CUDA_BEGIN("cuDeviceGetName", kInitialised | kLiving)
  if (!Driver::Get().Knows(device) || length <= 0) {
    return kInvalidDevice;
  }
  std::snprintf(name, static_cast<std::size_t>(length),
                "fake GPU %d, PTX interpreted on the host", device);
  return kSuccess;
}

// The same in every process, as a GPU's.
FAKE_CUDA_ENTRY Result cuDeviceGetUuid(void* sixteen_bytes, Device device) {
  FAKE_CUDA_BEGIN("cuDeviceGetUuid", kInitialised | kLiving)
  if (!Driver::Get().Knows(device)) {
    return kInvalidDevice;
  }
  char uuid[16] = {'f', 'a', 'k', 'e', ' ', 'G', 'P', 'U'};
  std::memcpy(uuid + 8, &device, sizeof(device));
  std::memcpy(sixteen_bytes, uuid, sizeof(uuid));
  return kSuccess;
}

FAKE_CUDA_ENTRY Result cuDeviceTotalMem_v2(std::size_t* bytes, Device device) {
  FAKE_CUDA_BEGIN("cuDeviceTotalMem", kInitialised | kLiving)
  *bytes = kDeviceBytes;
  return Driver::Get().Knows(device) ? kSuccess : kInvalidDevice;
}

FAKE_CUDA_ENTRY Result cuDeviceGetAttribute(int* value, int attribute,
                                            Device device) {
  FAKE_CUDA_BEGIN("cuDeviceGetAttribute", kInitialised | kLiving)
  return Driver::Get().Knows(device) ? AttributeOf(attribute, value)
                                     : kInvalidDevice;
}

FAKE_CUDA_ENTRY Result cuDeviceGetDefaultMemPool(Pool** pool, Device device) {
  FAKE_CUDA_BEGIN("cuDeviceGetDefaultMemPool", kInitialised | kLiving)
  Driver& driver = Driver::Get();
  if (!driver.Knows(device)) {
    return kInvalidDevice;
  }
  *pool = &driver.pools[static_cast<std::size_t>(device)];
  return kSuccess;
}

FAKE_CUDA_ENTRY Result cuDevicePrimaryCtxRetain(Context** context,
                                                Device device) {
  FAKE_CUDA_BEGIN("cuDevicePrimaryCtxRetain", kInitialised | kLiving)
  Driver& driver = Driver::Get();
  if (!driver.Knows(device)) {
    return kInvalidDevice;
  }
  *context = driver.contexts.Retain(device);
  return kSuccess;
}

FAKE_CUDA_ENTRY Result cuDevicePrimaryCtxRelease_v2(Device device) {
  FAKE_CUDA_BEGIN("cuDevicePrimaryCtxRelease", kInitialised)
  Driver& driver = Driver::Get();
  if (!driver.Knows(device)) {
    return kInvalidDevice;
  }
  Result result = kSuccess;
  if (Context* const last = driver.contexts.Release(device, &result)) {
    driver.DestroyContext(last);
  }
  return result;
}

// Works without a context, and makes none.
FAKE_CUDA_ENTRY Result cuDevicePrimaryCtxGetState(Device device,
                                                  unsigned* flags,
                                                  int* active) {
  FAKE_CUDA_BEGIN("cuDevicePrimaryCtxGetState", kInitialised)
  Driver& driver = Driver::Get();
  if (!driver.Knows(device)) {
    return kInvalidDevice;
  }
  *flags = 0;
  *active = driver.contexts.Active(device) ? 1 : 0;
  return kSuccess;
}

// The new context is current ("pushed", cuCtxCreate).
FAKE_CUDA_ENTRY Result cuCtxCreate_v2(Context** context, unsigned /*flags*/,
                                      Device device) {
  FAKE_CUDA_BEGIN("cuCtxCreate", kInitialised | kLiving)
  Driver& driver = Driver::Get();
  if (!driver.Knows(device)) {
    return kInvalidDevice;
  }
  *context = driver.contexts.Create(device);
  Contexts::Push(*context);
  return kSuccess;
}

FAKE_CUDA_ENTRY Result cuCtxDestroy_v2(Context* context) {
  FAKE_CUDA_BEGIN("cuCtxDestroy", kInitialised)
  Driver& driver = Driver::Get();
  if (!driver.contexts.Destroy(context)) {
    return kInvalidContext;
  }
  driver.DestroyContext(context);
  if (Contexts::Current() == context) {
    Contexts::Pop();
  }
  return kSuccess;
}

FAKE_CUDA_ENTRY Result cuCtxPushCurrent_v2(Context* context) {
  FAKE_CUDA_BEGIN("cuCtxPushCurrent", kInitialised)
  if (context == nullptr || !Driver::Get().contexts.Alive(context)) {
    return kInvalidContext;
  }
  Contexts::Push(context);
  return kSuccess;
}

FAKE_CUDA_ENTRY Result cuCtxPopCurrent_v2(Context** context) {
  FAKE_CUDA_BEGIN("cuCtxPopCurrent", kInitialised)
  Context* const popped = Contexts::Pop();
  if (context != nullptr) {
    *context = popped;
  }
  return popped == nullptr ? kInvalidContext : kSuccess;
}

FAKE_CUDA_ENTRY Result cuCtxSetCurrent(Context* context) {
  FAKE_CUDA_BEGIN("cuCtxSetCurrent", kInitialised)
  if (context != nullptr && !Driver::Get().contexts.Alive(context)) {
    return kInvalidContext;
  }
  Contexts::Set(context);
  return kSuccess;
}

FAKE_CUDA_ENTRY Result cuCtxGetCurrent(Context** context) {
  FAKE_CUDA_BEGIN("cuCtxGetCurrent", kInitialised)
  *context = Contexts::Current();
  return kSuccess;
}

// 201 without a context (lupine #444, "probed on 590.48.01").
FAKE_CUDA_ENTRY Result cuCtxGetDevice(Device* device) {
  FAKE_CUDA_BEGIN("cuCtxGetDevice", kInitialised | kContext)
  *device = Contexts::Current()->device;
  return kSuccess;
}

FAKE_CUDA_ENTRY Result cuCtxSynchronize() {
  FAKE_CUDA_BEGIN("cuCtxSynchronize", kWork | kOutsideCapture)
  Driver& driver = Driver::Get();
  driver.queues_of(*Contexts::Current()).AwaitAll();
  return driver.calls.sticky();
}

FAKE_CUDA_ENTRY Result cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  FAKE_CUDA_BEGIN("cuCtxGetStreamPriorityRange", kWork)
  *least = 0;
  *greatest = kGreatestPriority;
  return kSuccess;
}

}  // namespace fake_cuda
