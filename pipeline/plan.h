// A schedule made ready to run: for each transfer, what it waits for and where
// its bytes are. The pipeline and the checker run plans, not schedules.
#ifndef RINGPIPE_PIPELINE_PLAN_H_
#define RINGPIPE_PIPELINE_PLAN_H_

#include <vector>

#include "base/status.h"
#include "pipeline/schedule.h"

namespace ringpipe {

// How values are held. A received value stays in the slot into which it was
// received, is reduced there, and is sent on from there; user memory gets a
// copy where the target is output. A slot's value never changes once it is
// complete, so scratch places need no memory of their own: each write of one is
// a new slot, held until its last reader is done. Where output is registered, a
// message that is the value lands in it directly, and is sent on from there.
struct Step {
  Transfer transfer;

  // Acquires a slot when it is issued: receives that are not direct, copies
  // into scratch, and sends by way of a copy.
  bool takes_slot = false;
  // Receives whose message lands in user memory.
  bool direct = false;
  // Sends that copy their source from user memory into their own slot.
  bool copies_in = false;
  // Sends that register their source, for themselves alone.
  bool registers = false;
  // The step in whose slot the source is; -1: in user memory.
  int source_step = -1;
  // The value goes to user memory too.
  bool to_memory = false;
  // Later steps that read this step's slot.
  int readers = 0;

  // Events that must come before the source may be read, and before the target
  // in user memory may be written.
  int read_waits = 0;
  int write_waits = 0;

  // Whom this step's events release: its value is complete in its slot; it is
  // done with user memory (written, or read for the last time).
  struct Dependent {
    int step;
    bool write;  // one of its write_waits, else of its read_waits
  };
  std::vector<Dependent> on_value;
  std::vector<Dependent> on_done;
};

// One rank's part of a collective. Immutable.
struct Plan {
  int chunks = 1;
  std::vector<Step> steps;
  std::vector<int> peers;  // that steps name, in order, each once
};

struct PlanOptions {
  // input and output are the same memory.
  bool in_place = false;
  // User memory that the devices may use as it is: sends from it need no slot,
  // nor do messages that are the value of a place in output.
  bool input_registered = false;
  bool output_registered = false;
  // Sends from other user memory register what they send instead of copying it.
  bool register_sends = false;
  // A message may land in memory from which this rank has sent. It is then not
  // received before that send has ended, so that two ranks that exchange the
  // same places would wait for each other: a slot between breaks the circle.
  bool direct_over_sent = false;
};

// kInternal, naming the transfer, for a schedule that no correct algorithm
// gives: a place or peer out of range, scratch read before it is written, input
// written.
Result<Plan> Compile(const Schedule& schedule, int rank, int size,
                     const PlanOptions& options);

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_PLAN_H_
