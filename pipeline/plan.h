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
// a new slot, held until its last reader is done.
struct Step {
  Transfer transfer;

  // Acquires a slot when it is issued: receives, copies into scratch, and
  // sends from user memory that is not registered.
  bool takes_slot = false;
  // Sends that copy their source from user memory into their own slot.
  bool copies_in = false;
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
};

struct PlanOptions {
  // input and output are the same memory.
  bool in_place = false;
  // User memory that the device may read as it is: sends need no slot.
  bool input_registered = false;
  bool output_registered = false;
};

// kInternal, naming the transfer, for a schedule that no correct algorithm
// gives: a place or peer out of range, scratch read before it is written, input
// written.
Result<Plan> Compile(const Schedule& schedule, int rank, int size,
                     const PlanOptions& options);

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_PLAN_H_
