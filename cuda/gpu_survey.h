// What a machine's CUDA driver and GPUs offer ringpipe, for somebody who asks
// before a job is started.
#ifndef RINGPIPE_CUDA_GPU_SURVEY_H_
#define RINGPIPE_CUDA_GPU_SURVEY_H_

#include <span>
#include <string>

#include "base/status.h"

namespace ringpipe {

struct SurveyedGpu {
  enum class State {
    kUsable,
    kBusy,        // unavailable, or out of memory: others use it
    kExclusive,   // in exclusive mode, and another process has it
    kProhibited,  // its compute mode lets nobody use it
    kUnsuitable,  // it works, but does not take what ringpipe needs
    kBroken,      // the driver reports an error
  };
  int ordinal = 0;
  std::string name;  // empty: the driver does not say
  // Compute capability.
  int major = 0;
  int minor = 0;
  State state = State::kUsable;
  Status usable;  // why not, with advice
};

// "usable", "exclusive", ...
const char* GpuStateName(SurveyedGpu::State state);

// Hears what SurveyGpus finds, while it does: the driver may hang or crash.
class GpuSurveyor {
 public:
  virtual ~GpuSurveyor() = default;
  // Before each question to the driver that may take long: "cuInit".
  virtual void Begins(const std::string& step) = 0;
  // 12040: CUDA 12.4. The first that is heard, if there is a driver.
  virtual void FoundDriver(int version) = 0;
  virtual void FoundGpu(const SurveyedGpu& gpu) = 0;
  // The driver works, and has none, for this reason.
  virtual void FoundNoGpu(const Status& why) = 0;
};

// Loads the driver into this process, makes the context of each GPU for a
// moment, if that is possible, and loads the kernels, which the driver may
// compile for that. So a usable GPU is one that a communicator can use.
// kUnavailable, with advice, where there is no driver or it is too old; the
// driver's error where it does not work. What is wrong with one GPU is said of
// that. Takes as long as the driver does: seconds, or for ever.
Status SurveyGpus(GpuSurveyor& surveyor);

// The one image of the kernels that there is, which the driver compiles for
// each GPU: "PTX 6.0 for compute capability 5.0".
std::string DescribeKernels();

// A way for device memory between ranks.
struct GpuPath {
  const char* name;
  const char* obstacle;  // why ringpipe has it not; nullptr: it has
};
// All that a user may look for.
std::span<const GpuPath> GpuPaths();

}  // namespace ringpipe

#endif  // RINGPIPE_CUDA_GPU_SURVEY_H_
