// What cuda_accelerator.cu provides, for a build without the CUDA toolkit.
#include "cuda/accelerator.h"

namespace ringpipe {

Result<std::unique_ptr<Accelerator>> CreateCudaAccelerator() {
  return Status(StatusCode::kUnavailable,
                "CUDA: this ringpipe was built without CUDA; install the CUDA "
                "toolkit, set CUDA_HOME to its folder and build again");
}

}  // namespace ringpipe
