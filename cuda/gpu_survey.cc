#include "cuda/gpu_survey.h"

#include <array>
#include <string_view>

#include "cuda/cuda_driver.h"
#include "cuda/cuda_error.h"
#include "cuda/kernels/reduce_ptx.h"

namespace ringpipe {
namespace {

using State = SurveyedGpu::State;

constexpr GpuPath kPaths[] = {
    {"copies between device memory and pinned slots in host memory", nullptr},
    {"GPUDirect RDMA",
     "ringpipe registers no device memory with RDMA devices, whatever they can "
     "do"},
    {"IPC between processes",
     "ringpipe does not open device memory of other processes: ranks of a host "
     "meet in host memory"},
    {"copies between GPUs",
     "a communicator uses one GPU, and reaches others' through host memory"},
    {"registered device memory", "Register takes host memory alone"},
};

// What follows `key` in the kernels' PTX, to the end of the line.
std::string_view InPtx(std::string_view key) {
  const std::string_view ptx = kReducePtx;
  const std::size_t at = ptx.find(key);
  if (at == std::string_view::npos) {
    return "?";
  }
  const std::string_view rest = ptx.substr(at + key.size());
  return rest.substr(0, rest.find_first_of("\n,"));
}

// Which of the driver's errors in making a context say that others are in the
// way.
State StateOf(CudaDriver::Error error, int compute_mode) {
  switch (error) {
    case CudaDriver::kSuccess:
      return State::kUsable;
    case CudaDriver::kDevicesUnavailable:
      return compute_mode == CudaDriver::kComputeModeExclusiveProcess
                 ? State::kExclusive
                 : State::kBusy;
    case CudaDriver::kOutOfMemory:
      return State::kBusy;
    case CudaDriver::kNoBinaryForGpu:
    case CudaDriver::kInvalidPtx:
    case CudaDriver::kUnsupportedPtxVersion:
      return State::kUnsuitable;
    default:
      return State::kBroken;
  }
}

// Asks about one GPU, until an answer says that it cannot be used.
class Look {
 public:
  Look(const CudaDriver& driver, int ordinal, GpuSurveyor& surveyor)
      : driver_(driver), surveyor_(surveyor) {
    gpu_.ordinal = ordinal;
  }

  SurveyedGpu Take() {
    if (AskFacts() && AskMode()) {
      TryContext();
    }
    return gpu_;
  }

 private:
  std::string Name() const { return "cuda:" + std::to_string(gpu_.ordinal); }

  // Whether the driver has done `what` without an error.
  bool Done(const std::string& what, CudaDriver::Error error) {
    if (error == CudaDriver::kSuccess) {
      return true;
    }
    gpu_.state = StateOf(error, compute_mode_);
    gpu_.usable = CudaStatus(driver_, what, error);
    return false;
  }
  bool Asked(const char* what, int attribute, int* value) {
    return Done(what, driver_.device_get_attribute(value, attribute, device_));
  }

  bool AskFacts() {
    std::array<char, 256> name = {};
    if (!Done("asking for the device",
              driver_.device_get(&device_, gpu_.ordinal)) ||
        !Done("asking for its name",
              driver_.device_get_name(
                  name.data(), static_cast<int>(name.size()) - 1, device_))) {
      return false;
    }
    gpu_.name = name.data();
    constexpr const char* kCapability = "asking for its compute capability";
    return Asked(kCapability, CudaDriver::kComputeCapabilityMajor,
                 &gpu_.major) &&
           Asked(kCapability, CudaDriver::kComputeCapabilityMinor, &gpu_.minor);
  }

  bool AskMode() {
    int maps_host_memory = 0;
    if (!Asked("asking for its compute mode", CudaDriver::kComputeMode,
               &compute_mode_) ||
        !Asked("asking whether it maps host memory",
               CudaDriver::kCanMapHostMemory, &maps_host_memory)) {
      return false;
    }
    if (compute_mode_ == CudaDriver::kComputeModeProhibited) {
      gpu_.state = State::kProhibited;
      gpu_.usable = Status(StatusCode::kUnavailable,
                           "its compute mode lets no process use it; change "
                           "that with nvidia-smi -c DEFAULT, or use another "
                           "GPU");
    } else if (maps_host_memory == 0) {
      gpu_.state = State::kUnsuitable;
      gpu_.usable = Status(StatusCode::kUnavailable,
                           "it cannot map host memory, which the reductions "
                           "need; use another GPU");
    }
    return gpu_.usable.ok();
  }

  void TryContext() {
    surveyor_.Begins("making the context of " + Name());
    CudaDriver::Context context = nullptr;
    if (!Done("making the context",
              driver_.primary_context_retain(&context, device_))) {
      return;
    }
    if (Done("making the context current", driver_.context_push(context))) {
      surveyor_.Begins("loading the kernels on " + Name());
      CudaDriver::Module module = nullptr;
      if (Done("loading the kernels",
               driver_.module_load(&module, kReducePtx))) {
        static_cast<void>(driver_.module_unload(module));
      }
      static_cast<void>(driver_.context_pop(&context));
    }
    surveyor_.Begins("giving back the context of " + Name());
    static_cast<void>(driver_.primary_context_release(device_));
  }

  const CudaDriver& driver_;
  GpuSurveyor& surveyor_;
  SurveyedGpu gpu_;
  CudaDriver::Device device_ = 0;
  int compute_mode_ = 0;
};

}  // namespace

const char* GpuStateName(State state) {
  switch (state) {
    case State::kUsable:
      return "usable";
    case State::kBusy:
      return "busy";
    case State::kExclusive:
      return "exclusive";
    case State::kProhibited:
      return "prohibited";
    case State::kUnsuitable:
      return "unsuitable";
    case State::kBroken:
      return "broken";
  }
  return "unknown";
}

Status SurveyGpus(GpuSurveyor& surveyor) {
  surveyor.Begins("loading libcuda.so.1");
  RINGPIPE_ASSIGN_OR_RETURN(const CudaDriver driver, CudaDriver::Load());
  int version = 0;
  surveyor.Begins("cuDriverGetVersion");
  RINGPIPE_RETURN_IF_ERROR(CudaStatus(driver, "asking for its version",
                                      driver.driver_get_version(&version)));
  surveyor.FoundDriver(version);
  surveyor.Begins("cuInit");
  int count = 0;
  CudaDriver::Error error = driver.init(0);
  if (error == CudaDriver::kSuccess) {
    surveyor.Begins("cuDeviceGetCount");
    error = driver.device_get_count(&count);
  }
  if (error == CudaDriver::kSuccess && count == 0) {
    error = CudaDriver::kNoDevice;
  }
  const Status started = CudaStatus(driver, "starting the driver", error);
  if (error == CudaDriver::kNoDevice) {
    surveyor.FoundNoGpu(started);
    return Status::Ok();
  }
  RINGPIPE_RETURN_IF_ERROR(started);
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    surveyor.Begins("asking about cuda:" + std::to_string(ordinal));
    surveyor.FoundGpu(Look(driver, ordinal, surveyor).Take());
  }
  return Status::Ok();
}

std::string DescribeKernels() {
  // "50" of "sm_50".
  const std::string target(InPtx(".target sm_"));
  return "PTX " + std::string(InPtx(".version ")) + " for compute capability " +
         target.substr(0, target.size() - 1) + "." +
         target.substr(target.size() - 1);
}

std::span<const GpuPath> GpuPaths() { return kPaths; }

}  // namespace ringpipe
