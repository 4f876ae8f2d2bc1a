// Entry points about the library itself, and what tests control.
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "cuda/fake_driver/control.h"
#include "cuda/fake_driver/driver.h"
#include "cuda/fake_driver/entry_points.h"

namespace fake_cuda {
namespace {

constexpr int kVersion = 12000;

struct EntryPoint {
  const char* name;
  void* function;
};
constexpr const char* kNames[] = {
#define FAKE_CUDA_NAME(name, symbol, parameters) #name,
    FAKE_CUDA_FUNCTIONS(FAKE_CUDA_NAME)
#undef FAKE_CUDA_NAME
};

void* FunctionOf(const std::string& name) {
#define FAKE_CUDA_FIND(base, symbol, parameters) \
  if (name == #base) {                           \
    return reinterpret_cast<void*>(&symbol);     \
  }
  FAKE_CUDA_FUNCTIONS(FAKE_CUDA_FIND)
#undef FAKE_CUDA_FIND
  return nullptr;
}

struct ErrorText {
  Result error;
  const char* name;
  const char* text;
};
constexpr ErrorText kErrors[] = {
    {kSuccess, "CUDA_SUCCESS", "no error"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "the device is busy or unavailable"},
    {kNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {kInvalidPtx, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {kNotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {kHostMemoryAlreadyRegistered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {kHostMemoryNotRegistered, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {kIllegalInstruction, "CUDA_ERROR_ILLEGAL_INSTRUCTION",
     "an illegal instruction was encountered"},
    {kMisalignedAddress, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {kNotSupported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {kCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {kCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {kCaptureIsolation, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {kCaptureImplicit, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking "
     "stream"},
    {kCapturedEvent, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing "
     "stream"},
};

Result FindError(Result error, const char** to, bool name) {
  for (const ErrorText& known : kErrors) {
    if (known.error == error) {
      *to = name ? known.name : known.text;
      return kSuccess;
    }
  }
  *to = nullptr;  // as of an error that the real one does not know
  return kInvalidValue;
}

}  // namespace

bool IsEntryPoint(const std::string& name) {
  return FunctionOf(name) != nullptr;
}

// The real one takes a hundred ms and more. Who looks every 10 ms whether it
// was loaded knows it before there is device memory.
constexpr std::chrono::milliseconds kStartTime(20);

FAKE_CUDA_ENTRY Result cuInit(unsigned flags) {
  FAKE_CUDA_BEGIN("cuInit", kNothing)
  Driver& driver = Driver::Get();
  if (flags != 0) {
    return kInvalidValue;
  }
  if (driver.forked()) {
    return kNotInitialized;
  }
  if (driver.settings.devices == 0) {
    return kNoDevice;
  }
  if (!driver.initialised()) {
    std::this_thread::sleep_for(kStartTime);
  }
  driver.process = getpid();
  // The real one keeps /dev/nvidiactl and others open, which children inherit.
  static const int file = memfd_create("nvidiactl (fake)", MFD_CLOEXEC);
  static_cast<void>(file);
  return kSuccess;
}

FAKE_CUDA_ENTRY Result cuDriverGetVersion(int* version) {
  FAKE_CUDA_BEGIN("cuDriverGetVersion", kNothing)
  *version = kVersion;
  return kSuccess;
}

FAKE_CUDA_ENTRY Result cuGetErrorName(Result error, const char** name) {
  FAKE_CUDA_BEGIN("cuGetErrorName", kNothing)
  return FindError(error, name, true);
}

FAKE_CUDA_ENTRY Result cuGetErrorString(Result error, const char** text) {
  FAKE_CUDA_BEGIN("cuGetErrorString", kNothing)
  return FindError(error, text, false);
}

FAKE_CUDA_ENTRY Result cuGetProcAddress_v2(const char* name, void** function,
                                           int version, std::uint64_t /*flags*/,
                                           int* status) {
  FAKE_CUDA_BEGIN("cuGetProcAddress", kNothing)
  *function = version == kVersion ? FunctionOf(name) : nullptr;
  const bool found = *function != nullptr;
  if (status != nullptr) {
    *status = found ? 0 : 1;  // CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
  }
  return found ? kSuccess : kNotFound;
}

// --- Control ----------------------------------------------------------------

FAKE_CUDA_ENTRY int fake_cuda_fail(const char* name, int nth, int error) {
  return Driver::Get().calls.Fail(name, nth, error) ? 1 : 0;
}

FAKE_CUDA_ENTRY long fake_cuda_calls(const char* name) {
  return Driver::Get().calls.count(name);
}

FAKE_CUDA_ENTRY const char* fake_cuda_entry_point(int i) {
  return i >= 0 && i < static_cast<int>(std::size(kNames)) ? kNames[i]
                                                           : nullptr;
}

FAKE_CUDA_ENTRY void fake_cuda_stick(int device, int stuck) {
  Driver& driver = Driver::Get();
  if (driver.Knows(device)) {
    driver.devices[static_cast<std::size_t>(device)]->Stick(stuck != 0);
  }
}

FAKE_CUDA_ENTRY void fake_cuda_reset() {
  Driver& driver = Driver::Get();
  // With an error that stuck, nothing could be unregistered.
  if (driver.calls.sticky() != kSuccess) {
    driver.memory.UnregisterAll();
  }
  driver.calls.Reset();
  for (const auto& device : driver.devices) {
    device->Stick(false);
  }
}

FAKE_CUDA_ENTRY int fake_cuda_pending() {
  int pending = 0;
  for (const auto& device : Driver::Get().devices) {
    pending += device->pending();
  }
  return pending;
}

FAKE_CUDA_ENTRY int fake_cuda_live(const char* kind) {
  Driver& driver = Driver::Get();
  if (std::strcmp(kind, "streams") == 0) {
    return driver.streams.live_streams();
  }
  if (std::strcmp(kind, "events") == 0) {
    return driver.streams.live_events();
  }
  if (std::strcmp(kind, "memory") == 0) {
    return driver.memory.live();
  }
  int active = 0;
  if (std::strcmp(kind, "contexts") == 0) {
    for (Device device = 0; device < driver.settings.devices; ++device) {
      active += driver.contexts.Active(device) ? 1 : 0;
    }
    return active;
  }
  return -1;
}

}  // namespace fake_cuda
