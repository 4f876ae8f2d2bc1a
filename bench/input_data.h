// Input of the benchmark: element i of rank r in iteration t is a hash of
// (seed, r, t, i). So any rank can tell what every other rank sent, and an
// element of another rank, place or iteration is not taken for the right one.
#ifndef RINGPIPE_BENCH_INPUT_DATA_H_
#define RINGPIPE_BENCH_INPUT_DATA_H_

#include <cstddef>
#include <cstdint>

#include "reduction/data_type.h"

namespace ringpipe {

struct InputKey {
  std::uint64_t seed = 0;
  std::uint64_t rank = 0;
  std::uint64_t iteration = 0;
};

// Writes elements first, first + 1, ..., first + count - 1 of one rank's input
// to out[0], out[1], ...
//
// The values fit `op`:
//   sum, average, min, max of floats: [-1, 1), most with a full mantissa;
//   prod of floats: 1 - 2^-7 to 1 + 2^-7, so that 1024 of them neither
//     overflow nor underflow;
//   sum, average, min, max of integers: the type's whole range (sums wrap);
//   prod of integers: small and odd, so that no factor is lost in the product.
void FillInput(DataType type, ReduceOp op, const InputKey& key,
               std::uint64_t first, std::size_t count, void* out);

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_INPUT_DATA_H_
