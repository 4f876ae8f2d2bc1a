// Reductions of host memory, vectorised (Highway) for the CPU at hand.
#ifndef RINGPIPE_REDUCTION_HOST_REDUCTION_H_
#define RINGPIPE_REDUCTION_HOST_REDUCTION_H_

#include <cstddef>

#include "reduction/data_type.h"

namespace ringpipe {

// target[i] = own[i] OP received[0][i] OP received[1][i] ..., from left to
// right, for i in [0, count). `received` has `sources` pointers, at least one.
//
// Each of `own` and `received` is exactly `target`, or does not overlap it;
// they may overlap each other. All are aligned to their element, no more, and
// may be null where count is 0. An untyped function pointer, so that type and
// operation are chosen once a call and not once an element.
//
// An element's result has the same bits at any position, on any CPU, and where
// the sources are reduced by several calls, in their order; but which of
// several NaNs a NaN is may differ.
using ReduceFunction = void (*)(void* target, const void* own,
                                const void* const* received, int sources,
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
