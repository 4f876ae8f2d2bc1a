// Proves that a collective algorithm is right: runs the schedules of all ranks
// on symbolic values.
//
// What a run (symbolic_run.h) ends with is compared with what the collective
// promises.
//
// What one run proves. Nothing that can happen next is prevented by something
// else happening first (flow.h: no wait is a choice), so every order of events
// ends in the same state, or sticks in the same one: a run in one order decides
// whether there is a deadlock, and for values that are passed on in slots and
// messages also what they are. Only user memory could see a difference, where a
// wait is missing between two uses of one place; the orders below let such uses
// meet.
#ifndef RINGPIPE_PIPELINE_CHECKER_H_
#define RINGPIPE_PIPELINE_CHECKER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "pipeline/collective.h"
#include "pipeline/plan.h"
#include "pipeline/schedule.h"
#include "pipeline/symbolic_run.h"

namespace ringpipe {

// What a collective promises of output[c] of rank r at the end, which is all
// that a rank has of it (collective.h). Where chunks belong to ranks, there are
// as many chunks as ranks or a multiple, and chunk c belongs to rank
// c * size / chunks.
//
//   allreduce, reduce-scatter, reduce   input[c] of every rank, once each,
//                                       reduced and then finished (size > 1)
//   all-gather, gather                  input[c] of c's owner
//   broadcast, scatter                  input[c] of the root
//   all-to-all                          input[r] of rank c (and so on for more
//                                       chunks than ranks)
//   barrier                             something of every rank's

// RunOptions::subchunks may be 0: 3 * depth + 1, which fill the window of two
// rounds, go around, and leave a last round that is not full.
struct CheckOptions : RunOptions {
  Collective collective = Collective::kAllReduce;
  int root = 0;
  // Of an allreduce: the result is the same bits on every rank, for operations
  // that neither commute nor associate.
  bool same_bits = true;
  PlanOptions plan = {};
};

// Ok where the schedules (or plans), one for each rank, keep the promise: every
// promised chunk is as promised, every message met its receive, all slots are
// free. kInternal, naming rank, place, expected and found, where they do not.
// kResourceExhausted where they are stuck and some rank lacks a slot.
// `result`, unless null, is set only then. Plans may have been compiled with
// different options on each rank, as far as those of one call may differ: in
// place on some ranks and not on others, with memory that is registered or
// shared here and not there, by connections of different abilities.
Status Check(const std::vector<Schedule>& schedules,
             const CheckOptions& options, RunResult* result = nullptr);
Status CheckPlans(const std::vector<Plan>& plans, const CheckOptions& options,
                  RunResult* result = nullptr);

// The schedules of all `size` ranks.
std::vector<Schedule> SchedulesOf(Algorithm algorithm, int size, int root,
                                  std::span<const int> hosts = {});

// The smallest number of slots with which Check succeeds; options.slots is
// ignored. Fails as Check does where no number is enough.
Result<int> SmallestSlots(const std::vector<Schedule>& schedules,
                          const CheckOptions& options);

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_CHECKER_H_
