#ifndef RINGPIPE_PIPELINE_PIPELINE_STATE_H_
#define RINGPIPE_PIPELINE_PIPELINE_STATE_H_

#include <memory>
#include <vector>

#include "memory_pool/slot_pool.h"
#include "pipeline/connection.h"
#include "pipeline/flow.h"
#include "pipeline/operation.h"

namespace ringpipe {

// What the stages of one rank's pipeline share. Owned by the executor; one
// thread at a time.
struct PipelineState {
  int size = 1;
  std::vector<std::shared_ptr<verbs::ProtectionDomain>> rails;
  std::unique_ptr<SlotPool> pool;
  // Bytes of the value in each slot.
  std::vector<std::uint32_t> slot_bytes;

  // By rank; nullptr for this one.
  std::vector<Connection*> connections;

  // The running collective.
  Flow flow;
  const Operation* operation = nullptr;
  // The connections that its plan uses.
  std::vector<Connection*> active;
  // By Index: where a message lies that has arrived.
  struct Received {
    const std::byte* data = nullptr;
    std::uint32_t bytes = 0;
  };
  std::vector<Received> received;

  SlotList& slots() { return pool->list(); }
  Accelerator& accelerator() { return *operation->accelerator; }

  std::size_t instances() const {
    return flow.lanes() * operation->plan->steps.size();
  }
  std::size_t Index(Instance instance) const {
    return instance.lane * operation->plan->steps.size() + instance.step;
  }

  // Where the source of `instance` is, and how long it is.
  Memory SourceOf(Instance instance) const {
    return ValueOf(flow.source_slot(instance),
                   flow.step(instance).transfer.source, instance);
  }
  Memory OperandOf(Instance instance) const {
    return ValueOf(flow.operand_slot(instance),
                   flow.step(instance).transfer.operand, instance);
  }
  Memory ValueOf(int slot, Place place, Instance instance) const {
    return slot != SlotList::kNone ? InSlot(slot) : InMemory(place, instance);
  }
  Memory InSlot(int slot) const {
    return {pool->data(slot), slot_bytes[slot], &pool->lkeys(), true};
  }
  Memory InMemory(Place place, Instance instance) const {
    return InMemory(place, flow.subchunk(instance));
  }
  Memory InMemory(Place place, std::uint64_t subchunk) const {
    const UserBuffer& buffer = place.buffer == Place::Buffer::kInput
                                   ? operation->input
                                   : operation->output;
    const Extent extent = operation->chunking.Subchunk(place.chunk, subchunk);
    const std::uint64_t bytes = SizeOf(operation->type);
    return {reinterpret_cast<std::byte*>(buffer.base + extent.begin * bytes),
            static_cast<std::uint32_t>(extent.count * bytes), &buffer.lkeys};
  }
  // Where a message for `instance` goes, and how long it may be.
  Memory TargetOf(Instance instance) const {
    const Step& step = flow.step(instance);
    if (step.arrival == Step::Arrival::kAtPeer) {
      return {};
    }
    return step.arrival == Step::Arrival::kInTarget
               ? InMemory(step.transfer.target, instance)
               : Memory{pool->data(flow.slot(instance)),
                        static_cast<std::uint32_t>(pool->slot_bytes()),
                        &pool->lkeys()};
  }
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_PIPELINE_STATE_H_
