// The order in which a plan's steps run for all sub-chunks: a state machine
// that knows neither time nor bytes. The executor feeds it with what the device
// and the accelerator have done; the checker with what they might do.
#ifndef RINGPIPE_PIPELINE_FLOW_H_
#define RINGPIPE_PIPELINE_FLOW_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "memory_pool/slot_list.h"
#include "pipeline/fifo.h"
#include "pipeline/instance.h"
#include "pipeline/plan.h"

namespace ringpipe {

// How many sub-chunks each chunk of a buffer has; scratch is as the input. Both
// empty: all chunks have as many, or one that is empty.
struct SubchunksOfChunks {
  std::span<const std::uint64_t> inputs;
  std::span<const std::uint64_t> outputs;
};

// Issue order. The sub-chunks are walked in rounds of `depth`; within a round
// steps come in schedule order, and within a step the round's sub-chunks:
//
//     for round, for step, for sub-chunk of the round: issue
//
// Slots are acquired in exactly this order, so that no later use of a slot can
// starve an earlier one; the receives of a peer are posted in it, so that both
// ends of a connection count the same messages. A round may start while the one
// before it still runs: 2 * depth sub-chunks ("lanes") are in flight at most.
//
// Smallest number of slots. Every wait is for a definite earlier event (a slot
// for the next instance in issue order, a value, a credit) and no wait is a
// choice, so whether a run gets stuck does not depend on timing: one run by
// the checker decides it. For the ring, depth + 1: each of the `depth`
// sub-chunks of a step holds one slot with its value, on which the next rank
// waits, and with one more slot the first of the next step can be received,
// which frees the slot of its predecessor at the sender, and so on around the
// ring. With only `depth`, all ranks hold values and none can receive.
//
// Not thread-safe. Stays where it is started. Nothing allocates after Start,
// and Start only where a plan is larger than all before it.
class Flow {
 public:
  // Begins `plan` (kept by reference until the next Start) for `subchunks`
  // sub-chunks, `depth` a round, between `size` ranks. `slots` is kept too.
  // None of `of_chunks`, which is kept too, is larger than `subchunks`.
  void Start(const Plan& plan, std::uint64_t subchunks, int depth, int size,
             SlotList& slots, const SubchunksOfChunks& of_chunks = {});

  bool finished() const { return remaining_lanes_ == 0; }
  int lanes() const { return lanes_; }

  // What Issue did: kIssued one instance; kNoSlot: the next one needs a slot
  // and there is none; kWindow: it is of a sub-chunk whose lane another
  // one, two rounds before, still uses; kNothing is left to issue.
  enum class Issued { kIssued, kNoSlot, kWindow, kNothing };
  Issued Issue();
  // What Issue takes next, unless nothing is left, and its sub-chunk.
  Instance next() const {
    return {static_cast<std::uint32_t>(next_subchunk() % lanes_), next_step_};
  }
  std::uint64_t next_subchunk() const {
    return round_ * depth_ + lane_in_round_;
  }

  // Work that is ready, in order. The driver takes an instance from the front,
  // does the work and reports it below.
  Fifo<Instance>& to_register() { return to_register_; }  // a send's source
  Fifo<Instance>& to_copy_in() { return to_copy_in_; }    // -> slot
  Fifo<Instance>& to_reduce() { return to_reduce_; }
  Fifo<Instance>& to_copy_out() { return to_copy_out_; }  // -> user memory

  // The next send to `peer` in wire order, if it is ready: nullptr otherwise.
  const Instance* NextSend(int peer);
  void PopSend(int peer) { sends_[peer].pop(); }
  bool HasSends(int peer) const { return !sends_[peer].empty(); }

  // The next receive to post for `peer`, if its memory may be written already:
  // nullptr otherwise. Messages of a peer belong to receives in this order.
  const Instance* NextReceive(int peer);
  void PopReceive(int peer) { receives_[peer].pop(); }
  // Joins to a reduction that is ready, if possible, the next one, to be done
  // in the same pass: one that alone uses its value and waits for nothing else.
  // The driver reports both, in order.
  std::optional<Instance> JoinNext(Instance instance);
  // The one that was joined to `instance`, if one was.
  std::optional<Instance> Joined(Instance instance) const;

  // Whether a message from `peer` has been issued that has not been received.
  bool HasReceives(int peer) const { return open_receives_[peer] > 0; }

  // Reports. Slots that nobody needs any more go back.
  void Received(Instance instance);
  void Registered(Instance instance) { cell(instance).ready = true; }
  void CopiedIn(Instance instance);
  void Reduced(Instance instance);
  void CopiedOut(Instance instance);
  void Sent(Instance instance);

  const Step& step(Instance instance) const {
    return plan_->steps[instance.step];
  }
  std::uint64_t subchunk(Instance instance) const {
    return lane_subchunk_[instance.lane];
  }
  // Whether it would be a message of nothing, past the end of its chunks, which
  // neither end sends. Where a connection is eager, both do.
  bool IsNoMessage(Instance instance) const;
  // The slot that the instance acquired, SlotList::kNone where it has none.
  int slot(Instance instance) const { return cell(instance).slot; }
  // The slot of another step of the same sub-chunk.
  int slot_of(Instance instance, int step) const {
    return slot({instance.lane, static_cast<std::uint32_t>(step)});
  }

 private:
  // What is still open of one instance.
  struct Cell {
    int slot = SlotList::kNone;
    int references = 0;  // to the slot: readers, and the copy to user memory
    int read_waits = 0;
    int write_waits = 0;
    bool issued = false;
    bool arrived = false;
    // A send that may go on the wire, or a value that may be copied to user
    // memory.
    bool ready = false;
    bool joined = false;  // to the reduction before it
  };

  Cell& cell(Instance instance) {
    return cells_[instance.lane * plan_->steps.size() + instance.step];
  }
  const Cell& cell(Instance instance) const {
    return cells_[instance.lane * plan_->steps.size() + instance.step];
  }

  std::optional<Instance> SoleReader(Instance instance) const;
  void OpenLane(std::uint32_t lane, std::uint64_t subchunk);
  void Advance();
  void Queue(Instance instance);
  void Arrive(Instance instance);
  void MayRead(Instance instance);
  static bool IsWritable(const Step& reduction, const Cell& state);
  void MayReduce(Instance instance);
  void MayWrite(Instance instance);
  void Complete(Instance instance);
  void Done(Instance instance);
  void ReleaseSlot(Instance instance);
  void Unreference(Instance holder);
  void UnreferenceHolders(Instance instance);

  const Plan* plan_ = nullptr;
  SlotList* slots_ = nullptr;
  std::uint64_t subchunks_ = 0;
  SubchunksOfChunks of_chunks_;
  std::vector<bool> eager_;  // by peer
  int depth_ = 1;
  int lanes_ = 0;

  // The next instance to issue.
  std::uint64_t round_ = 0;
  std::uint32_t next_step_ = 0;
  std::uint32_t lane_in_round_ = 0;
  std::uint64_t remaining_lanes_ = 0;  // sub-chunks that have not ended

  std::vector<Cell> cells_;  // lane-major
  std::vector<std::uint64_t> lane_subchunk_;
  std::vector<std::size_t> lane_open_steps_;  // 0: the lane is free

  Fifo<Instance> to_register_, to_copy_in_, to_reduce_, to_copy_out_;
  std::vector<Fifo<Instance>> sends_, receives_;  // by peer
  std::vector<std::size_t> open_receives_;        // by peer
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_FLOW_H_
