#ifndef RINGPIPE_CUDA_KERNELS_REDUCE_PTX_H_
#define RINGPIPE_CUDA_KERNELS_REDUCE_PTX_H_

namespace ringpipe {

// What clang made of reduce.cu: PTX, of which the driver makes machine code.
extern const char kReducePtx[];

}  // namespace ringpipe

#endif  // RINGPIPE_CUDA_KERNELS_REDUCE_PTX_H_
