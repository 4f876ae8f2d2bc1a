// Algorithms that the library does not offer, to show that schedules express
// more than rings, and to try the checker and the executor on them.
#ifndef RINGPIPE_TESTS_SCHEDULES_TEST_ALGORITHMS_H_
#define RINGPIPE_TESTS_SCHEDULES_TEST_ALGORITHMS_H_

#include <span>
#include <string>

#include "pipeline/checker.h"
#include "pipeline/schedule.h"

namespace ringpipe {

struct TestAlgorithm {
  std::string name;
  Algorithm algorithm = nullptr;
  Promise promise = Promise::kAllReduce;
  bool same_bits = true;  // as in CheckOptions
  bool in_place = true;   // works there too
  bool rooted = false;
};

// The ones below and those of the engine.
std::span<const TestAlgorithm> AllTestAlgorithms();

// All-gather in ceil(log2 p) steps: in step k rank r sends the first
// min(2^k, p - 2^k) blocks that it has, from its own on, to r - 2^k. Bruck et
// al., "Efficient algorithms for all-to-all communications in multiport
// message-passing systems" (IEEE Trans. Parallel Distrib. Syst. 8, 1997),
// concatenation. Blocks go to their final place at once, instead of a rotation
// at the end.
Schedule BruckAllGather(int rank, int size, int root);

// All-to-all in p - 1 steps: in step k rank r sends to r + k and receives from
// r - k. Thakur, Rabenseifner and Gropp, "Optimization of Collective
// Communication Operations in MPICH" (Int. J. High Perform. Comput. Appl. 19,
// 2005). Not in place: output[r - k] arrives before input[r - k] is sent.
Schedule PairwiseAllToAll(int rank, int size, int root);

// All-to-all in ceil(log2 p) steps: the block that has to travel i ranks
// travels 2^k of them in step k for each bit k of i. Bruck et al. 1997 (above),
// index. The rotations at the beginning and the end are renamings of places.
// Not in place, for the same reason.
Schedule BruckAllToAll(int rank, int size, int root);

// Gloo's "allreduce_ring" (gloo/allreduce_ring.h): the message is not divided,
// p - 1 steps, S (p - 1) bytes. Gloo passes the inputs around and reduces them
// on the side, here the partial sums travel: the same messages in number, size
// and order. In neither is the result the same bits on all ranks.
Schedule UnsplitRingAllReduce(int rank, int size, int root);

// Broadcast down a binomial tree: in each of ceil(log2 p) steps the ranks that
// have the message double. Thakur, Rabenseifner and Gropp 2005 (above).
Schedule BinomialBroadcast(int rank, int size, int root);

}  // namespace ringpipe

#endif  // RINGPIPE_TESTS_SCHEDULES_TEST_ALGORITHMS_H_
