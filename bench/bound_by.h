// What bounds a run, and what a person can do about it.
#ifndef RINGPIPE_BENCH_BOUND_BY_H_
#define RINGPIPE_BENCH_BOUND_BY_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ringpipe {

// What a stage of the pipeline (base/counters.h) did during the timed calls and
// the barriers before them.
struct StageTime {
  double busy_ns = 0;
  double wait_ns = 0;  // the rank had nothing to do but wait for it
};

// What one rank did in its timed calls, barriers included.
struct RankLoad {
  std::string host;
  std::set<int> cores;     // that the rank may run on
  double in_calls_ns = 0;  // by the clock
  double cpu_ns = 0;       // of all threads of the process
  // Ready to run, and no core was free: of the thread that makes the calls. 0:
  // not known.
  double queued_ns = 0;
  std::map<std::string, StageTime> stages;
};

// Parts of the time in calls, 0 to 1, averages over the ranks.
struct StageShare {
  double busy = 0;
  double wait = 0;
};

// By stage. A stage whose operations overlap (an accelerator's) counts at most
// the whole time.
std::map<std::string, StageShare> StageShares(
    const std::vector<RankLoad>& ranks);

// "reduce: 64 % of the time in calls; a faster core ...". nullopt where the
// evidence is not clear; less than a millisecond in calls is none. The rules,
// the first that holds:
//
//   1. a host has more ranks than cores, and they asked for 90 % of the cores
//      or more: the processor
//   2. ranks stood in line for a core a quarter of the time, though there is
//      one for each: other processes, or ranks that sit on one core
//   3. one rank works most of the time, twice as long as the median of the
//      others, which wait: this rank
//   4. the ranks are busy in their stages 60 % of the time or more: the longest
//      of these
//   5. they wait for free slots 30 % of the time or more: RINGPIPE_SLOTS
//   6. several hosts, and the ranks wait for messages half of the time or
//      more: the network
//
// Waiting for messages on one host says nothing: it is a peer's work, of which
// the rules before would know, or the time that a step takes.
// `registered`: the buffers are (-R 1 or 2).
std::optional<std::string> BoundBy(const std::vector<RankLoad>& ranks,
                                   bool registered);

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_BOUND_BY_H_
