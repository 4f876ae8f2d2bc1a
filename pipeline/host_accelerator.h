// The Accelerator of host memory.
#ifndef RINGPIPE_PIPELINE_HOST_ACCELERATOR_H_
#define RINGPIPE_PIPELINE_HOST_ACCELERATOR_H_

#include <memory>

#include "cuda/accelerator.h"

namespace ringpipe {

// Everything is done when the call returns. Owns every pointer.
std::unique_ptr<Accelerator> CreateHostAccelerator();

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_HOST_ACCELERATOR_H_
