#include "cuda/cuda_memory.h"

#include <cstdint>

namespace ringpipe {
namespace {

std::string NameOf(int device) { return "cuda:" + std::to_string(device); }

// What the driver says where it knows nothing of a pointer: it is not in use in
// this process (or not any more), or the memory is none of its own. That this
// thread has no context (CUDA_ERROR_INVALID_CONTEXT) says nothing of the
// memory: another thread may have allocated it on a device.
bool MeansHostMemory(CudaDriver::Error error) {
  return error == CudaDriver::kNotInitialized ||
         error == CudaDriver::kDeinitialized ||
         error == CudaDriver::kInvalidValue;
}

}  // namespace

Result<bool> CudaMemory::Owns(const void* pointer) {
  if (pointer == nullptr) {
    return false;
  }
  int attributes[] = {CudaDriver::kMemoryType, CudaDriver::kIsManaged,
                      CudaDriver::kDeviceOrdinal};
  // Left at 0 by the driver for memory that is not its own.
  unsigned type = 0;
  unsigned managed = 0;
  int device = kNone;
  void* values[] = {&type, &managed, &device};
  const CudaDriver::Error error = driver_.pointer_get_attributes(
      3, attributes, values, reinterpret_cast<std::uintptr_t>(pointer));
  if (MeansHostMemory(error)) {
    return false;
  }
  if (error != CudaDriver::kSuccess) {
    return Status(StatusCode::kInvalidArgument,
                  "CUDA: the driver does not say whose memory a buffer is: " +
                      driver_.NameOf(error) +
                      (error == CudaDriver::kInvalidContext
                           ? "; make a device current on this thread first "
                             "(cudaSetDevice)"
                           : "; an earlier CUDA call has failed, or the buffer "
                             "was freed"));
  }
  if (managed != 0) {
    Decide(device < 0 ? 0 : device);
    return true;
  }
  if (type != CudaDriver::kMemoryTypeDevice) {
    return false;
  }
  const int own = Decide(device);
  if (device != own) {
    return Status(StatusCode::kInvalidArgument,
                  "a buffer is memory of " + NameOf(device) +
                      ", but the communicator uses " + NameOf(own) +
                      ", whose memory its first device buffer was; give it "
                      "memory of " +
                      NameOf(own) + ", or create a communicator for each GPU");
  }
  return true;
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
