#ifndef RINGPIPE_PIPELINE_PIPELINE_STATE_H_
#define RINGPIPE_PIPELINE_PIPELINE_STATE_H_

#include <memory>
#include <vector>

#include "memory_pool/slot_pool.h"
#include "pipeline/flow.h"
#include "pipeline/operation.h"
#include "pipeline/peer_connection.h"

namespace ringpipe {

// What the stages of one rank's pipeline share. Owned by the executor; one
// thread at a time.
struct PipelineState {
  int rank = 0;
  int size = 1;
  std::unique_ptr<SlotPool> pool;
  // By rank; empty for this rank itself.
  std::vector<std::unique_ptr<PeerConnection>> connections;
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
    std::uint32_t lkey = 0;  // where the device may read it
  };
  Value SourceOf(Instance instance) const {
    const int slot = flow.source_slot(instance);
    if (slot != SlotList::kNone) {
      return InSlot(slot);
    }
    return InMemory(flow.step(instance).transfer.source, instance);
  }
  Value InSlot(int slot) const {
    return {pool->data(slot), slot_bytes[slot], pool->lkey()};
  }
  Value InMemory(Place place, Instance instance) const {
    const std::uint64_t subchunk = flow.subchunk(instance);
    const UserBuffer& buffer = place.buffer == Place::Buffer::kInput
                                   ? operation->input
                                   : operation->output;
    return {operation->Address(place, subchunk),
            static_cast<std::uint32_t>(operation->Bytes(place, subchunk)),
            buffer.lkey};
  }
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_PIPELINE_STATE_H_
