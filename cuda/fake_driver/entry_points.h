// The functions that the library exports.
#ifndef RINGPIPE_CUDA_FAKE_DRIVER_ENTRY_POINTS_H_
#define RINGPIPE_CUDA_FAKE_DRIVER_ENTRY_POINTS_H_

#include "cuda/fake_driver/abi.h"

namespace fake_cuda {

#define FAKE_CUDA_DECLARE(name, symbol, parameters) \
  FAKE_CUDA_ENTRY Result symbol parameters;
FAKE_CUDA_FUNCTIONS(FAKE_CUDA_DECLARE)
#undef FAKE_CUDA_DECLARE

}  // namespace fake_cuda

#endif  // RINGPIPE_CUDA_FAKE_DRIVER_ENTRY_POINTS_H_
