// Whether every rank's output of a collective is right, element by element.
//
// Of an allreduce every rank could recompute every output: p * p * count hash
// evaluations in all. Instead the output is cut into blocks, and block b
// belongs to rank b mod p, which alone compares it with the reference. Right
// outputs are the same bits on every rank, so all ranks exchange a hash of each
// block; one whose hash differs from the owner's recounts that block by itself.
// A wrong element on any rank is found, at the cost of p * count evaluations
// plus one reading of each output.
//
// When is an element wrong? With x_i the inputs and u = 2^-24 (float32) or
// 2^-53 (float64), 2^-11 (float16) or 2^-8 (bfloat16), if it is further from
// the reference than
//   sum:     (p-1) u Σ|x_i|    (any order of additions stays within: Jeannerod
//            and Rump, "Improved error bounds for inner products in
//            floating-point arithmetic", SIAM J. Matrix Anal. 34, 2013)
//   average: (1 + pu) u Σ|x_i|, the sum's bound / p and one division's rounding
//   prod:    γ |Π x_i| with γ = (p-1)u / (1 - (p-1)u) (Higham, Accuracy and
//            Stability of Numerical Algorithms, section 3.1)
// or if it is NaN. Integers, min and max are exact. The reference is computed
// in float64; for float64 data its own rounding counts: the sum is kept as an
// exact pair (TwoSum), while average and prod allow u |reference| and γ more.
#ifndef RINGPIPE_BENCH_VERIFICATION_H_
#define RINGPIPE_BENCH_VERIFICATION_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "pipeline/collective.h"
#include "reduction/data_type.h"

namespace ringpipe {

// The call to verify, and where this rank stands.
struct VerifiedCall {
  Collective collective = Collective::kAllReduce;
  int root = 0;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::size_t count = 0;  // elements, as in Call
  int rank = 0;
  int size = 1;
  std::uint64_t seed = 0;
  std::uint64_t iteration = 0;
};

// Elements of output[0, count), which is element `first` and following of the
// result of `call`, that are off the reference by more than is allowed.
std::size_t CountWrong(const VerifiedCall& call, std::uint64_t first,
                       std::size_t count, const void* output);

// Wrong elements in the whole output of this rank.
std::size_t CountWrong(const VerifiedCall& call, const void* output);

// --- Of an allreduce, by all ranks together ---

// Elements in a block, for outputs of `call`.
std::size_t VerificationBlock(const VerifiedCall& call);

// What this rank tells the others: the hash of each of its blocks, and the
// wrong elements in each block that it owns. At most 768 KiB.
std::string VerificationDigest(const VerifiedCall& call, const void* output);

// Wrong elements in this rank's output, given every rank's digest of its own.
// kMismatch if a digest has not the size that it must have.
Result<std::size_t> CountWrong(const VerifiedCall& call, const void* output,
                               const std::vector<std::string>& digests);

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_VERIFICATION_H_
