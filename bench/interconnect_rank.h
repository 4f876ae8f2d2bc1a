// What one rank of bench/interconnect does.
#ifndef RINGPIPE_BENCH_INTERCONNECT_RANK_H_
#define RINGPIPE_BENCH_INTERCONNECT_RANK_H_

#include "bench/interconnect_options.h"

namespace ringpipe {

// Joins the job that the launcher's variables describe, measures, reports (one
// rank) and returns the exit status of the process.
int InterconnectRank(const InterconnectOptions& options);

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_INTERCONNECT_RANK_H_
