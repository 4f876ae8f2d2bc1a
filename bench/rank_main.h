// What one rank of bench/allreduce does.
#ifndef RINGPIPE_BENCH_RANK_MAIN_H_
#define RINGPIPE_BENCH_RANK_MAIN_H_

#include "bench/options.h"

namespace ringpipe {

// Joins the job that the launcher's variables describe, measures, prints (rank
// 0) and returns the exit status of the process.
int RankMain(const Options& options);

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_RANK_MAIN_H_
