// A schedule made ready to run: for each transfer, what it waits for and where
// its bytes are. The pipeline and the checker run plans, not schedules.
#ifndef RINGPIPE_PIPELINE_PLAN_H_
#define RINGPIPE_PIPELINE_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "pipeline/abilities.h"
#include "pipeline/schedule.h"

namespace ringpipe {

// Where values are. A received value stays in the slot into which it was
// received, is reduced there, and is sent on from there; user memory gets a
// copy where the target is output. A slot's value never changes once it is
// complete, so scratch places need no memory of their own: each write of one is
// a new slot, held until its last reader is done.
//
// A slot is left out where it can be: a message lands in output itself where
// the connection reaches it, a reduction writes its result there, and what lies
// in the peer's memory is read from there. What has to be sent on from user
// memory must be reached by that connection, so that otherwise there is a slot.
struct Step {
  Transfer transfer;

  // Acquires a slot when it is issued.
  bool takes_slot = false;

  // --- Sends
  // Copies its source into its own slot (from user memory, or where it lies in
  // more pieces than a message can); or registers it, for itself alone; or
  // neither, because the connection takes a copy at once (eager: the host
  // does).
  bool copies_in = false;
  bool registers = false;
  bool eager = false;

  // --- Receives: where the message arrives.
  enum class Arrival { kInSlot, kInTarget, kAtPeer };
  Arrival arrival = Arrival::kInSlot;
  // A device reads what lies at the peer. Where that is out of its reach, the
  // host takes it into the step's slot, and gives it back to the peer at once.
  bool device_reads = false;
  // A reduction's first operand is what was received: of two ranks that
  // exchange values that of the lower comes first, so that both get the same
  // bits, also where the operation does not commute in all of them (max of +0
  // and -0).
  bool received_first = false;

  // --- Reductions: who does it, to whom all that it touches is in reach.
  // kBoth: each piece is reduced by whose memory that is.
  Owner reducer = Owner::kHost;

  // What lies together of the source, and of the operand: in the slot of an
  // earlier step, as a part of that one's target, or (-1) in user memory.
  struct Piece {
    int step = -1;
    Place place = {};
    // Of a plan that scales its input: this is input, not scaled yet.
    bool unscaled = false;
  };
  std::vector<Piece> source;
  std::vector<Piece> operand;
  // The steps in whose slots these are, each once.
  std::vector<int> holders;
  // The value goes to user memory: by way of the step's slot, or (in_memory)
  // straight there.
  bool to_memory = false;
  bool in_memory = false;
  // Of a reduction by a device: it writes both the step's slot and user memory.
  bool in_both = false;
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

    bool operator==(const Dependent&) const = default;
  };
  std::vector<Dependent> on_value;
  std::vector<Dependent> on_done;
};

// One rank's part of a collective. Immutable.
struct Plan {
  int chunks = 1;
  bool equal_chunks = false;  // Schedule's
  bool in_place = false;
  bool scales_input = false;
  Owner input_owner = Owner::kHost;
  Owner output_owner = Owner::kHost;
  Owner OwnerOf(Place place) const {
    return place.buffer == Place::Buffer::kInput ? input_owner : output_owner;
  }
  std::vector<Step> steps;
  // The peers that steps name, in order, each once.
  struct Peer {
    int rank = 0;
    bool sends = false;
    bool receives = false;
    bool eager = false;  // the first message each way
    // It is said once to all peers for which this holds.
    bool eager_to_all = false;
  };
  std::vector<Peer> peers;
  // At most one message each way, eager, between host memory here and there.
  bool all_eager = false;
  bool takes_slots = false;  // any of the steps does
  // In which a step's source, operand or target lies.
  std::size_t most_pieces = 1;
};

// What a plan depends on besides the schedule. Other ranks' may differ, but
// both ends of a connection find the same Plan::Peer::eager.
struct PlanOptions {
  // What the connection to a peer can do, and with the call's buffers.
  struct Peer {
    Abilities abilities = {};
    Reach input = {};
    Reach output = {};
  };

  bool in_place = false;
  // A message may land in memory from which this rank has sent. It is then not
  // received before that send has ended, so that two ranks that exchange the
  // same places would wait for each other: a slot between breaks the circle.
  bool direct_over_sent = false;
  // Each rank says the same to all its peers: SaysTheSameToAll of all ranks'
  // schedules, since both ends of a connection have to find it.
  bool same_to_all = false;
  // What is in the way of who does a piece of work goes through a slot.
  Owner input_owner = Owner::kHost;
  Owner output_owner = Owner::kHost;
  // Who reduces, kHost or (where there is memory of its) kDevice. Unless given:
  // whoever has an operand in his memory, and the host where nobody has.
  std::optional<Owner> reducer = {};
  // They are lists of pieces: nothing is sent from where it lies.
  bool in_pieces = false;
  // Whoever reads the input multiplies it by a factor; nor is anything sent
  // from where it lies then.
  bool scales_input = false;
  // Each transfer is one message of at most so many bytes; 0: more, or several.
  std::uint32_t message_bytes = 0;
  // Every peer; or one by one, by rank, which outlives Compile.
  Peer each_peer = {};
  std::span<const Peer> peers = {};
};

// kInternal, naming the transfer, for a schedule that no correct algorithm
// gives: a place or peer out of range, scratch read before it is written, input
// written, places of one transfer that are not the same chunks, or of which a
// part went to the peer with which it reduces.
Result<Plan> Compile(const Schedule& schedule, int rank, int size,
                     const PlanOptions& options);

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_PLAN_H_
