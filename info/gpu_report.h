#ifndef RINGPIPE_INFO_GPU_REPORT_H_
#define RINGPIPE_INFO_GPU_REPORT_H_

#include <chrono>
#include <vector>

#include "base/status.h"
#include "cuda/gpu_survey.h"

namespace ringpipe::info {

// What the CUDA driver of a machine says, as far as it came.
struct GpuReport {
  int driver_version = 0;  // 12040: CUDA 12.4; 0: not known
  // Ok, or why there is no driver, or why it does not work.
  Status driver;
  // Ok, or why a driver that works has no GPU.
  Status none;
  std::vector<SurveyedGpu> gpus;

  // Whether a communicator could use any of them.
  bool usable() const;
  // Why device memory does not go this way here; nullptr: it does.
  const char* ObstacleTo(const GpuPath& path) const;
};

// SurveyGpus in a child process: this one loads no driver, and is neither hurt
// by one that crashes nor held up by one that hangs: where a step of it takes
// longer than `patience`, `driver` names that step, at most a second later. By
// fork: while this process has one thread.
GpuReport AskAboutGpus(std::chrono::milliseconds patience);

}  // namespace ringpipe::info

#endif  // RINGPIPE_INFO_GPU_REPORT_H_
