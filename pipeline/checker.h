// Proves that a collective algorithm is right: runs the schedules of all ranks
// on symbolic values.
//
// The run has what a real one has: Compile's waits, Flow's orders, exactly so
// many slots a rank, receives posted before a message may go, messages of a
// connection that arrive in any order, and user memory that is overwritten when
// a copy arrives, be it too early or not. What it ends with is compared with
// what the collective promises.
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
#include <vector>

#include "base/status.h"
#include "pipeline/plan.h"
#include "pipeline/schedule.h"

namespace ringpipe {

// What is in output[c] of rank r at the end. Where chunks belong to ranks,
// there are as many chunks as ranks or a multiple, and chunk c belongs to rank
// c * size / chunks.
enum class Promise {
  // input[c] of every rank, once each, reduced and then finished (size > 1).
  kAllReduce,
  // The same in r's own chunks, the only ones of output that it has.
  kReduceScatter,
  // input[c] of c's owner, who has no other chunks of input.
  kAllGather,
  // input[c] of the root, the only rank that has input.
  kBroadcast,
  // input[r] of rank c (and so on for more chunks than ranks).
  kAllToAll,
  // Something of every rank's.
  kBarrier,
};

struct CheckOptions {
  Promise promise = Promise::kAllReduce;
  int root = 0;
  // kAllReduce: the result is the same bits on every rank, for operations that
  // neither commute nor associate.
  bool same_bits = true;

  int slots = 0;  // of each rank
  int depth = 1;  // sub-chunks in a round
  // Sub-chunks of a chunk; 0: 3 * depth + 1, which fill the window of two
  // rounds, go around, and leave a last round that is not full.
  std::uint64_t subchunks = 0;
  PlanOptions plan = {};

  // What happens next at a rank where several things can. kEager: what began
  // first ends first, and reads and writes memory when it begins. kLazy:
  // whatever can begin does before anything ends, and it reads and writes
  // memory when it ends. kRandom: all of this by `seed`.
  enum class Order { kEager, kLazy, kRandom };
  Order order = Order::kEager;
  std::uint64_t seed = 0;

  // A rule of connections that all of them break, for tests of the checker:
  // what lies at the sender is held until it was read; the first message of a
  // call goes even if its eager message is not ready; data go only into a
  // receive, and to a peer that has said that it makes the same call; only the
  // first message is eager.
  enum class Fault {
    kNone,
    kFreesBeforeRead,
    kNeverAnnounces,
    kSendsWithoutReceive,
    kSendsBeforeAgreed,
    kAlwaysEager,
  };
  Fault fault = Fault::kNone;
};

// Ok where the schedules (or plans), one for each rank, keep the promise: every
// promised chunk is as promised, every message met its receive, all slots are
// free. kInternal, naming rank, place, expected and found, where they do not.
// kResourceExhausted where they are stuck and some rank lacks a slot.
//
// `data_flow` unless null: a hash of every message as an expression of inputs,
// in the order of its connection, and of every output. Equal for schedules
// that compute the same from the same in the same way.
Status Check(const std::vector<Schedule>& schedules,
             const CheckOptions& options, std::uint64_t* data_flow = nullptr);
Status CheckPlans(const std::vector<Plan>& plans, const CheckOptions& options,
                  std::uint64_t* data_flow = nullptr);

// The schedules of all `size` ranks.
std::vector<Schedule> SchedulesOf(Algorithm algorithm, int size, int root);

// The smallest number of slots with which Check succeeds; options.slots is
// ignored. Fails as Check does where no number is enough.
Result<int> SmallestSlots(const std::vector<Schedule>& schedules,
                          const CheckOptions& options);

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_CHECKER_H_
