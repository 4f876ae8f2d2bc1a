// Reductions of host memory, vectorised (Highway) for the CPU at hand.
#ifndef RINGPIPE_REDUCTION_HOST_REDUCTION_H_
#define RINGPIPE_REDUCTION_HOST_REDUCTION_H_

#include <cstddef>

#include "reduction/data_type.h"

namespace ringpipe {

// accumulator[i] = accumulator[i] OP source[i] for i in [0, count). The two do
// not overlap; each is aligned to its element, no more; both may be null where
// count is 0. An untyped function pointer, so that type and operation are
// chosen once a call and not once an element.
//
// An element's result does not depend on its position or on the CPU, but for
// which of several NaNs a NaN is.
using ReduceFunction = void (*)(void* accumulator, const void* source,
                                std::size_t count);

// data[i] = data[i] / size, with size > 0: what kAverage does once the sum is
// complete. Floating point is divided (not multiplied by the reciprocal);
// integers are truncated toward zero, also where size is no value of the type.
using FinishFunction = void (*)(void* data, std::size_t count, int size);

// nullptr for a type or operation outside the enumerations. For kAverage the
// sum. This, FindFinish and what they return may be called from any thread.
ReduceFunction FindReduction(DataType type, ReduceOp op);

// nullptr where the operation needs no finishing step.
FinishFunction FindFinish(DataType type, ReduceOp op);

}  // namespace ringpipe

#endif  // RINGPIPE_REDUCTION_HOST_REDUCTION_H_
