#ifndef RINGPIPE_CUDA_GPU_NUMBER_H_
#define RINGPIPE_CUDA_GPU_NUMBER_H_

#include <cstdint>

#include "cuda/cuda_driver.h"

namespace ringpipe {

// Of the GPU that has this ordinal in this process: a number that it has in all
// processes, whatever its ordinal there is, and no other GPU has, made from its
// UUID. 0: the driver does not say, or there is no such GPU. After the driver's
// init. Makes no context. Any thread.
std::uint64_t GpuNumber(const CudaDriver& driver, int ordinal);

}  // namespace ringpipe

#endif  // RINGPIPE_CUDA_GPU_NUMBER_H_
