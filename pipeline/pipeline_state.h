#ifndef RINGPIPE_PIPELINE_PIPELINE_STATE_H_
#define RINGPIPE_PIPELINE_PIPELINE_STATE_H_

#include <memory>
#include <vector>

#include "memory_pool/slot_pool.h"
#include "pipeline/connection_set.h"
#include "pipeline/flow.h"
#include "pipeline/operation.h"

namespace ringpipe {

// What the stages of one rank's pipeline share. Owned by the executor; one
// thread at a time.
struct PipelineState {
  int rank = 0;
  int size = 1;
  std::vector<std::shared_ptr<verbs::ProtectionDomain>> rails;
  std::unique_ptr<SlotPool> pool;
  std::unique_ptr<ConnectionSet> connections;
  // Bytes of the value in each slot.
  std::vector<std::uint32_t> slot_bytes;

  // The running collective.
  Flow flow;
  const Operation* operation = nullptr;
  // The connections that its plan uses.
  std::vector<PeerConnection*> active;

  SlotList& slots() { return pool->list(); }

  // Where the source of `instance` is, and how long it is.
  struct Value {
    std::byte* data = nullptr;
    std::uint32_t bytes = 0;
    const RailKeys* lkeys = nullptr;  // where the devices may use it
  };
  Value SourceOf(Instance instance) const {
    const int slot = flow.source_slot(instance);
    if (slot != SlotList::kNone) {
      return InSlot(slot);
    }
    return InMemory(flow.step(instance).transfer.source, instance);
  }
  Value InSlot(int slot) const {
    return {pool->data(slot), slot_bytes[slot], &pool->lkeys()};
  }
  Value InMemory(Place place, Instance instance) const {
    const std::uint64_t subchunk = flow.subchunk(instance);
    const UserBuffer& buffer = place.buffer == Place::Buffer::kInput
                                   ? operation->input
                                   : operation->output;
    return {operation->Address(place, subchunk),
            static_cast<std::uint32_t>(operation->Bytes(place, subchunk)),
            &buffer.lkeys};
  }
  // Where a message for `instance` goes, and how long it may be.
  Value TargetOf(Instance instance) const {
    if (flow.step(instance).direct) {
      const Value target =
          InMemory(flow.step(instance).transfer.target, instance);
      // Not every device takes a receive of no memory: nothing is written here.
      return target.bytes > 0 ? target
                              : Value{pool->data(0), 1, &pool->lkeys()};
    }
    return {pool->data(flow.slot(instance)),
            static_cast<std::uint32_t>(pool->slot_bytes()), &pool->lkeys()};
  }
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_PIPELINE_STATE_H_
