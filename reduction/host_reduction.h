// Reductions of host memory, vectorised (Highway) for the CPU at hand.
#ifndef RINGPIPE_REDUCTION_HOST_REDUCTION_H_
#define RINGPIPE_REDUCTION_HOST_REDUCTION_H_

#include <cstddef>
#include <span>

#include "reduction/data_type.h"
#include "reduction/scaling.h"

namespace ringpipe {

// target[i] = own[i] OP received[0][i] OP received[1][i] ..., from left to
// right, for i in [0, count). `received` has `sources` pointers, at least one.
//
// `own` and each of `received` are exactly `target`, or do not overlap it; they
// may overlap each other. All are aligned to their element type, and may be
// null if count is 0.
//
// The function pointer is untyped so that type and operation are chosen once
// for a call, not for each element.
//
// An element's result has the same bits at any position and on any CPU. It also
// has the same bits if several calls reduce the sources, in the same order.
// Only if the result is NaN, its bits may differ.
using ReduceFunction = void (*)(void* target, const void* own,
                                const void* const* received, int sources,
                                std::size_t count);

// data[i] = data[i] / size, with size > 0: what kAverage does when the sum is
// complete. Floating-point values are divided, not multiplied by the
// reciprocal. Integers are truncated toward zero, also if the type cannot hold
// `size`.
using FinishFunction = void (*)(void* data, std::size_t count, int size);

// target[i] = source[i] * factor, for floating-point types: `factor` as a
// float32 where the type has 32 bits or less, the product rounded to the type.
// `source` is exactly `target`, or does not overlap it.
using ScaleFunction = void (*)(void* target, const void* source,
                               std::size_t count, double factor);

// The reduction of `op`; for kAverage, that of the sum. nullptr for a type or
// operation outside the enumerations. All functions here, and those that they
// return, may be called from any thread.
ReduceFunction FindReduction(DataType type, ReduceOp op);

// The finishing step of `op`; nullptr if it needs none.
FinishFunction FindFinish(DataType type, ReduceOp op);

// nullptr for a type that cannot be scaled.
ScaleFunction FindScale(DataType type);

// target[i] = own[i] OP received[0][i] OP received[1][i] ..., as a
// ReduceFunction does it, with all that `scaling` asks for. Type and operation
// exist; only types that can be scaled have factors.
void ReduceAndScale(DataType type, ReduceOp op, void* target, const void* own,
                    std::span<const void* const> received, std::size_t count,
                    const Scaling& scaling);

}  // namespace ringpipe

#endif  // RINGPIPE_REDUCTION_HOST_REDUCTION_H_
