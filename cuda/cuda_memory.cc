#include "cuda/cuda_memory.h"

#include <dirent.h>
#include <sys/uio.h>
#include <unistd.h>

#include <climits>
#include <cstdint>
#include <memory>

namespace ringpipe {
namespace {

std::string NameOf(int device) { return "cuda:" + std::to_string(device); }

// What the driver says where it is not in use in this process, or not any more.
bool NotInUse(CudaDriver::Error error) {
  return error == CudaDriver::kNotInitialized ||
         error == CudaDriver::kDeinitialized;
}

// Whether a parent of this process has used CUDA: its driver's open files are
// inherited, though the driver does not work here.
bool HasFilesOfDriver() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"),
                                                   &closedir);
  if (folder == nullptr) {
    return false;
  }
  while (const dirent* const entry = readdir(folder.get())) {
    char target[PATH_MAX];
    const ssize_t length =
        readlinkat(dirfd(folder.get()), static_cast<const char*>(entry->d_name),
                   target, sizeof(target));
    if (length > 0 &&
        std::string(target, static_cast<std::size_t>(length)).find("nvidia") !=
            std::string::npos) {
      return true;
    }
  }
  return false;
}

// Without touching it: device memory is not mapped for the host.
bool HostReads(const void* pointer) {
  char byte;
  const iovec to = {&byte, 1};
  const iovec from = {const_cast<void*>(pointer), 1};
  return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1;
}

Status NotPrimary(int device) {
  return {
      StatusCode::kInvalidArgument,
      "a buffer is memory of a CUDA context that is not the primary one of " +
          NameOf(device) +
          "; allocate it with the runtime (cudaMalloc), or in the context "
          "of cuDevicePrimaryCtxRetain"};
}

}  // namespace

CudaDriver::Error CudaMemory::Ask(const void* pointer, Facts* facts) const {
  int attributes[] = {CudaDriver::kMemoryType, CudaDriver::kIsManaged,
                      CudaDriver::kDeviceOrdinal, CudaDriver::kContext};
  void* values[] = {&facts->type, &facts->managed, &facts->device,
                    static_cast<void*>(&facts->context)};
  return driver_.pointer_get_attributes(
      4, attributes, values, reinterpret_cast<std::uintptr_t>(pointer));
}

CudaDriver::Error CudaMemory::AskInContext(const void* pointer,
                                           Facts* facts) const {
  int devices = 0;
  CudaDriver::Error error = driver_.device_get_count(&devices);
  for (int device = 0; device < devices; ++device) {
    unsigned flags = 0;
    int active = 0;
    error = driver_.primary_context_get_state(device, &flags, &active);
    if (error != CudaDriver::kSuccess) {
      return error;
    }
    CudaDriver::Context context = nullptr;
    if (active == 0 || driver_.primary_context_retain(&context, device) !=
                           CudaDriver::kSuccess) {
      continue;
    }
    error = driver_.context_push(context);
    if (error == CudaDriver::kSuccess) {
      error = Ask(pointer, facts);
      static_cast<void>(driver_.context_pop(&context));
    }
    static_cast<void>(driver_.primary_context_release(device));
    return error;
  }
  // No primary context is active: `facts` are those of host memory.
  return error;
}

Result<bool> CudaMemory::Owns(const void* pointer) {
  if (pointer == nullptr) {
    return false;
  }
  Facts facts;
  CudaDriver::Error error = Ask(pointer, &facts);
  if (error == CudaDriver::kInvalidContext) {
    facts = {};
    error = AskInContext(pointer, &facts);
  }
  if (NotInUse(error)) {
    return WithoutDriver(pointer);
  }
  if (error == CudaDriver::kInvalidValue) {
    return false;
  }
  if (error != CudaDriver::kSuccess) {
    return Status(StatusCode::kDeviceError,
                  "CUDA: the driver does not say whose memory a buffer is: " +
                      driver_.NameOf(error) +
                      "; an earlier CUDA call of this process has failed, and "
                      "the process has to be started again");
  }
  if (facts.managed != 0) {
    return OwnsManaged(facts);
  }
  if (facts.type != CudaDriver::kMemoryTypeDevice) {
    return false;
  }
  RINGPIPE_RETURN_IF_ERROR(CheckContext(facts));
  RINGPIPE_RETURN_IF_ERROR(CheckDevice(facts.device));
  return true;
}

// Host memory, as a rule. But in a child of fork the driver knows nothing of
// the parent's device memory, and to read that here would be the end of the
// process.
Result<bool> CudaMemory::WithoutDriver(const void* pointer) {
  if (forked_.load() == Fork::kUnknown) {
    forked_ = HasFilesOfDriver() ? Fork::kYes : Fork::kNo;
  }
  if (forked_.load() == Fork::kNo || HostReads(pointer)) {
    return false;
  }
  return Status(StatusCode::kInvalidArgument,
                "a buffer is no memory that this process can read: device "
                "memory of the process that forked it? CUDA cannot be used "
                "after fork(); start the ranks with exec or spawn");
}

Result<bool> CudaMemory::OwnsManaged(const Facts& facts) {
  int device = facts.device;
  if (device < 0 && this->device() == kNone &&
      driver_.context_get_device(&device) != CudaDriver::kSuccess) {
    return Status(StatusCode::kInvalidArgument,
                  "a buffer is managed memory of no device, and no device is "
                  "current on this thread; make one current (cudaSetDevice)");
  }
  if (this->device() == kNone) {
    Decide(device);
  }
  return true;
}

Status CudaMemory::CheckDevice(int device) {
  const int own = Decide(device);
  if (device == own) {
    return Status::Ok();
  }
  return {StatusCode::kInvalidArgument,
          "a buffer is memory of " + NameOf(device) +
              ", but the communicator uses " + NameOf(own) +
              ", whose memory its first device buffer was; give it memory of " +
              NameOf(own) + ", or create a communicator for each GPU"};
}

// Memory of pools, and what cuMemMap has mapped, is of no context.
Status CudaMemory::CheckContext(const Facts& facts) {
  if (facts.context == nullptr || facts.context == primary_.load()) {
    return Status::Ok();
  }
  unsigned flags = 0;
  int active = 0;
  CudaDriver::Context primary = nullptr;
  // Retaining one that is not active would make it.
  if (driver_.primary_context_get_state(facts.device, &flags, &active) !=
          CudaDriver::kSuccess ||
      active == 0 ||
      driver_.primary_context_retain(&primary, facts.device) !=
          CudaDriver::kSuccess) {
    return NotPrimary(facts.device);
  }
  static_cast<void>(driver_.primary_context_release(facts.device));
  if (facts.context != primary) {
    return NotPrimary(facts.device);
  }
  primary_ = primary;
  return Status::Ok();
}

int CudaMemory::Decide(int device) {
  int decided = kNone;
  return device_.compare_exchange_strong(decided, device) ? device : decided;
}

std::string CudaMemory::name() const {
  const int decided = device();
  return decided == kNone ? "cuda" : NameOf(decided);
}

}  // namespace ringpipe
