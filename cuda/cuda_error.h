#ifndef RINGPIPE_CUDA_CUDA_ERROR_H_
#define RINGPIPE_CUDA_CUDA_ERROR_H_

#include <string>

#include "base/status.h"
#include "cuda/cuda_driver.h"

namespace ringpipe {

// "CUDA: WHAT: an illegal memory access ... (CUDA_ERROR_ILLEGAL_ADDRESS);
// ADVICE"; Ok for kSuccess.
Status CudaStatus(const CudaDriver& driver, const std::string& what,
                  CudaDriver::Error error);

// Whether the error ended the context: whatever ran in it has been stopped.
bool EndsContext(CudaDriver::Error error);

}  // namespace ringpipe

#endif  // RINGPIPE_CUDA_CUDA_ERROR_H_
