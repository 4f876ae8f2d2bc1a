// The collective algorithms, each a pure function to a schedule, and the table
// in which the engine finds them.
//
// To add one: write its function in algorithms.cc beside the others, give it a
// row in kAlgorithms there (with the smallest number of slots, argued) and a
// line in the table below. The executor, the checker and its tests over every
// size, and the simulator take it from the table.
//
// p is the number of ranks, S the bytes of the larger of a rank's two buffers
// (reduce-scatter's input, all-gather's output). A step is a message that has
// to wait for the one before it.
//
//   collective      name                steps           most bytes a rank sends
//   allreduce       ring                2 (p-1)         2 S (p-1)/p
//   allreduce       recursive_doubling  q + e           S (q + e/2)
//   reduce-scatter  ring                p-1             S (p-1)/p
//   all-gather      ring                p-1             S (p-1)/p
//   broadcast       ring                p-1, pipelined  S
//   barrier         recursive_doubling  q + e           0
//   allreduce       all_pairs           2               2 S (p-1)/p
//   reduce-scatter  all_pairs           1               S (p-1)/p
//   all-gather      all_pairs           1               S (p-1)/p
//   broadcast       all_pairs           2               S (root: 2 S (p-1)/p)
//
// q is log2 p, rounded down. e is 0 where p is a power of two, otherwise 2: one
// step before the exchanges, in which the ranks beyond the power of two hand in
// their values, and one after them, in which they get the result.
#ifndef RINGPIPE_ENGINE_ALGORITHMS_H_
#define RINGPIPE_ENGINE_ALGORITHMS_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"
#include "pipeline/schedule.h"

namespace ringpipe {

enum class Collective {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kBarrier,
};

// "allreduce", "reduce-scatter", ...
const char* CollectiveName(Collective collective);

struct AlgorithmInfo {
  std::string_view name;
  Algorithm algorithm = nullptr;
  // The smallest number of slots a rank with which the algorithm cannot
  // deadlock, whichever memory is registered, with `depth` sub-chunks a round.
  int (*slots)(int size, int depth) = nullptr;
  // The same where connections are not all alike; nullptr: no more.
  int (*slots_of_unlike)(int size, int depth) = nullptr;
  Collective collective = Collective::kAllReduce;
  // The message is one chunk; otherwise there is one for each rank.
  bool whole = false;
  // Of PlanOptions: no two ranks wait for each other with it.
  bool direct_over_sent = false;
  // Only where all ranks share memory; there it takes the default's place.
  bool one_host = false;
  // Of PlanOptions: every rank's first message to each of its peers is the
  // same.
  bool same_to_all = false;
  // Takes the default's place for messages of up to so many bytes, and where
  // all ranks read all inputs, for 32 KiB of these together.
  std::uint64_t short_bytes = 0;
};

// Every algorithm; the first of a collective is its default. Static.
std::span<const AlgorithmInfo> Algorithms();

// The slots with which no algorithm can deadlock; `one_host`: all ranks share
// memory.
int SlotsNeeded(int size, int depth, bool one_host);

// Sub-chunks a round: RINGPIPE_DEPTH, or fewer where, with many ranks on one
// host, the slots for their copies would take too much memory.
int DepthFor(int depth, std::uint64_t subchunk_bytes, int size, bool one_host);

// What a call uses whose whole message has so many bytes; `one_host`: between
// so many ranks that all share memory, 0 if they do not. Of Algorithms().
const AlgorithmInfo& AlgorithmFor(Collective collective, std::uint64_t bytes,
                                  int one_host = 0);

// Allreduce around a ring, bandwidth-optimal: p-1 steps that reduce, after
// which each rank has one chunk's result, and p-1 that hand the results around.
// Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations" (J. Parallel Distrib. Comput. 69, 2009), the logical ring; the
// pipeline over it as in PFN, "Technologies behind Distributed Deep Learning:
// AllReduce" (2018).
Schedule RingAllReduce(int rank, int size, int root);

// The first half of the above, turned by one so that rank r ends with
// output[r], the only chunk of output that it has.
Schedule RingReduceScatter(int rank, int size, int root);

// The second half: rank r begins with input[r], the only chunk of input that it
// has. Thakur, Rabenseifner and Gropp, "Optimization of Collective
// Communication Operations in MPICH" (Int. J. High Perform. Comput. Appl. 19,
// 2005), the section on allgather.
Schedule RingAllGather(int rank, int size, int root);

// Broadcast along the chain root, root + 1, ..., root - 1: sub-chunks follow
// each other, so that a long message takes the time of one transfer. Patarasuk,
// Faraj and Yuan, "Pipelined broadcast on Ethernet switched clusters" (IPDPS
// 2006), linear tree.
Schedule RingBroadcast(int rank, int size, int root);

// Allreduce in log2 p exchanges of the whole message: for short ones, and as a
// barrier for empty ones. Rank r's partner in exchange k is r XOR 2^k; ranks
// beyond the largest power of two fold their value into another's first and get
// the result last. Both partners reduce the same two values in the same order,
// so the result is the same bits on all ranks. Thakur, Rabenseifner and Gropp
// 2005 (above), the section on allreduce.
Schedule RecursiveDoublingAllReduce(int rank, int size, int root);

// Every rank with every other, for ranks that share memory: rank r reduces
// chunk r of all inputs, which it reads where they lie, and gives the result to
// all. Two synchronisations a call, whatever the number of ranks.
Schedule AllPairsAllReduce(int rank, int size, int root);

// For short messages and, empty, as a barrier: every rank gives each other its
// whole input, and reduces all of them in the order of the ranks. One step.
Schedule OneShotAllReduce(int rank, int size, int root);

// The first half of AllPairsAllReduce.
Schedule AllPairsReduceScatter(int rank, int size, int root);

// The second half.
Schedule AllPairsAllGather(int rank, int size, int root);

// The root gives every rank a part, which gives it to all: each rank's memory
// carries as much as any other's.
Schedule AllPairsBroadcast(int rank, int size, int root);

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_ALGORITHMS_H_
