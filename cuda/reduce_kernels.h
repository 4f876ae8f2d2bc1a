// How the host calls the kernels of kernels/reduce.cu.
#ifndef RINGPIPE_CUDA_REDUCE_KERNELS_H_
#define RINGPIPE_CUDA_REDUCE_KERNELS_H_

#include <string>

#include "cuda/accelerator.h"
#include "reduction/data_type.h"

namespace ringpipe {

// The one parameter of each kernel there, as reduce.cu has it.
struct ReduceParameters {
  void* target;
  void* copy;  // of the result; null: there is none
  const void* own;
  const void* received[Accelerator::kMostSources];
  unsigned long long count;
  int sources;
  int divisor;  // 0: the results are not divided
  double own_factor = 1;
  double received_factor = 1;
  double result_factor = 1;
};

// "ringpipe_reduce_float32_sum"; kAverage has the kernel of kSum. Type and
// operation exist.
std::string ReduceKernelName(DataType type, ReduceOp op);

}  // namespace ringpipe

#endif  // RINGPIPE_CUDA_REDUCE_KERNELS_H_
