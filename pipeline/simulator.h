// How long a collective would take on a network that no test machine has.
//
// The model is the α-β-γ one, and a cost μ of each message. A rank's messages
// leave in the order of its schedule, as far as they are ready. A message waits
// until the link out of the sender's host and then the one into the receiver's
// is free (who waits first is first), occupies both for μ and β a byte (its
// slot at the sender is then free), and arrives α later; its reduction takes γ
// a byte of the receiver's time. Ranks of one host share its links, in turn;
// messages between two of them use a link of those two's own. Copies, credits
// and acknowledgements cost nothing. The schedules run through the same
// Compile and Flow as in the executor, with the same slots, depth and
// sub-chunks. Hockney, "The communication challenge for MPP" (Parallel
// Computing 20, 1994) for α and β; Thakur, Rabenseifner and Gropp,
// "Optimization of Collective Communication Operations in MPICH" (Int. J. High
// Perform. Comput. Appl. 19, 2005), section on the cost model, for γ;
// Alexandrov, Ionescu, Schauser and Scheiman, "LogGP" (SPAA 1995) for μ, which
// is g there. The α of a model without μ is α + μ.
#ifndef RINGPIPE_PIPELINE_SIMULATOR_H_
#define RINGPIPE_PIPELINE_SIMULATOR_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "pipeline/schedule.h"

namespace ringpipe {

struct NetworkModel {
  double latency_s = 0;          // α, of a message
  double message_s = 0;          // μ, of a link, however short the message
  double wire_s_per_byte = 0;    // β, of a link, each way
  double reduce_s_per_byte = 0;  // γ, of a rank
  int ranks_per_host = 1;
};

struct SimulationOptions {
  std::uint64_t message_bytes = 0;
  std::uint64_t subchunk_bytes = 1 << 20;
  int depth = 1;
  int slots = 0;  // each rank has
};

struct SimulationResult {
  double seconds = 0;          // until the last rank has ended
  std::uint64_t messages = 0;  // of all ranks
  std::uint64_t bytes = 0;     // of all ranks, on links of all kinds
};

// Runs the schedules, one for each rank. kInvalidArgument for options that make
// no sense; what Compile returns for a schedule that is wrong;
// kResourceExhausted where the ranks are stuck.
Result<SimulationResult> Simulate(const std::vector<Schedule>& schedules,
                                  const NetworkModel& network,
                                  const SimulationOptions& options);

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_SIMULATOR_H_
