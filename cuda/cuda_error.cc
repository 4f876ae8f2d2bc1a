#include "cuda/cuda_error.h"

namespace ringpipe {
namespace {

StatusCode CodeOf(CudaDriver::Error error) {
  switch (error) {
    case CudaDriver::kNotInitialized:
    case CudaDriver::kNoDevice:
    case CudaDriver::kDevicesUnavailable:
    case CudaDriver::kNoBinaryForGpu:
    case CudaDriver::kInvalidPtx:
    case CudaDriver::kJitCompilerNotFound:
    case CudaDriver::kUnsupportedPtxVersion:
    case CudaDriver::kSystemNotReady:
    case CudaDriver::kSystemDriverMismatch:
    case CudaDriver::kCompatNotSupported:
      return StatusCode::kUnavailable;
    case CudaDriver::kOutOfMemory:
      return StatusCode::kResourceExhausted;
    case CudaDriver::kInvalidValue:
    case CudaDriver::kHostMemoryAlreadyRegistered:
    case CudaDriver::kHostMemoryNotRegistered:
      return StatusCode::kInvalidArgument;
    case CudaDriver::kNotPermitted:
      return StatusCode::kPermissionDenied;
    default:
      return StatusCode::kDeviceError;
  }
}

// What the user can do about it.
const char* AdviceFor(CudaDriver::Error error) {
  switch (error) {
    case CudaDriver::kNoDevice:
      return "is a GPU visible to this process (nvidia-smi, "
             "CUDA_VISIBLE_DEVICES)?";
    case CudaDriver::kNotInitialized:
      return "CUDA cannot be used after fork(): start the ranks with exec or "
             "spawn";
    case CudaDriver::kSystemNotReady:
      return "is the fabric manager of this host running "
             "(nvidia-fabricmanager)?";
    case CudaDriver::kSystemDriverMismatch:
      return "the kernel's and the library's driver differ: reboot, or "
             "reinstall the driver";
    case CudaDriver::kNoBinaryForGpu:
    case CudaDriver::kInvalidPtx:
    case CudaDriver::kUnsupportedPtxVersion:
      return "the driver does not take ringpipe's PTX 6.0 for compute "
             "capability 5.0: use a driver of CUDA 10.1 or later and a GPU "
             "from Maxwell on";
    case CudaDriver::kJitCompilerNotFound:
      return "the driver's compiler (libnvidia-ptxjitcompiler.so) is missing: "
             "reinstall the driver, or give the container all of it";
    case CudaDriver::kDevicesUnavailable:
      return "another process uses the GPU in exclusive mode, or nobody may "
             "use it (nvidia-smi -q -d COMPUTE)";
    case CudaDriver::kOutOfMemory:
      return "not enough memory to pin or allocate: use fewer or smaller "
             "slots, or free memory (nvidia-smi)";
    case CudaDriver::kOperatingSystem:
    case CudaDriver::kNotSupported:
      return "this system does not let CUDA use such memory: use host buffers, "
             "or look at the limits of the container or virtual machine";
    case CudaDriver::kHostMemoryAlreadyRegistered:
      return "these slots were pinned before: each accelerator needs slots of "
             "its own";
    case CudaDriver::kIllegalAddress:
      return "a buffer was freed too early, is too small, or is another GPU's "
             "that this one cannot reach";
    default:
      return "the process's CUDA context may be unusable: see the kernel log "
             "(dmesg, Xid) and run under compute-sanitizer";
  }
}

}  // namespace

Status CudaStatus(const CudaDriver& driver, const std::string& what,
                  CudaDriver::Error error) {
  if (error == CudaDriver::kSuccess) {
    return Status::Ok();
  }
  const char* text = nullptr;
  const bool known =
      driver.get_error_string != nullptr &&
      driver.get_error_string(error, &text) == CudaDriver::kSuccess &&
      text != nullptr;
  return {CodeOf(error), "CUDA: " + what + ": " +
                             (known ? std::string(text) + ", " : "") +
                             driver.NameOf(error) + "; " + AdviceFor(error)};
}

// Those of which cuda.h says that the process must be ended to go on.
bool EndsContext(CudaDriver::Error error) {
  switch (error) {
    case 214:  // CUDA_ERROR_ECC_UNCORRECTABLE
    case 220:  // CUDA_ERROR_NVLINK_UNCORRECTABLE
    case CudaDriver::kIllegalAddress:
    case 702:  // CUDA_ERROR_LAUNCH_TIMEOUT
    case 710:  // CUDA_ERROR_ASSERT
    case 714:  // CUDA_ERROR_HARDWARE_STACK_ERROR
    case 715:  // CUDA_ERROR_ILLEGAL_INSTRUCTION
    case 716:  // CUDA_ERROR_MISALIGNED_ADDRESS
    case 717:  // CUDA_ERROR_INVALID_ADDRESS_SPACE
    case 718:  // CUDA_ERROR_INVALID_PC
    case 719:  // CUDA_ERROR_LAUNCH_FAILED
      return true;
    default:
      return false;
  }
}

}  // namespace ringpipe
