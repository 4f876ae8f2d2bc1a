#include "cuda/reduce_kernels.h"

namespace ringpipe {

std::string ReduceKernelName(DataType type, ReduceOp op) {
  const ReduceOp kernel = op == ReduceOp::kAverage ? ReduceOp::kSum : op;
  return "ringpipe_reduce_" + std::string(Name(type)) + "_" +
         std::string(Name(kernel));
}

}  // namespace ringpipe
