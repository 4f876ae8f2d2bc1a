#ifndef RINGPIPE_PIPELINE_PIPELINE_STATE_H_
#define RINGPIPE_PIPELINE_PIPELINE_STATE_H_

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "memory_pool/slot_pool.h"
#include "pipeline/call_trace.h"
#include "pipeline/connection.h"
#include "pipeline/flow.h"
#include "pipeline/operation.h"
#include "pipeline/transports.h"

namespace ringpipe {

// What the stages of one rank's pipeline share. Owned by the executor; one
// thread at a time.
struct PipelineState {
  int size = 1;
  // Before the transports, so that it outlives them: until they are gone the
  // devices may use its memory.
  std::unique_ptr<SlotPool> pool;
  Transports transports;
  std::unique_ptr<CallTrace> trace;  // null: off

  // The running collective.
  Flow flow;
  const Operation* operation = nullptr;
  std::array<MemoryHandle, kMostTransports> slot_handles = {};  // by transport
  // The connections that its plan uses.
  std::vector<Connection*> active;
  // By Index: where a message lies that has arrived.
  struct Received {
    const std::byte* data = nullptr;
    std::uint32_t bytes = 0;
    bool lent = false;  // by the peer, who gets it back when it was read
  };
  std::vector<Received> received;

  SlotList& slots() { return pool->list(); }
  // Who touches it where it lies. Slots are not `on_device`.
  Accelerator& AcceleratorOf(bool on_device) {
    return on_device ? *operation->device : *operation->host;
  }
  Accelerator& AcceleratorOf(const Memory& memory) {
    return AcceleratorOf(memory.on_device);
  }

  std::size_t instances() const {
    return flow.lanes() * operation->plan->steps.size();
  }
  std::size_t Index(Instance instance) const {
    return instance.lane * operation->plan->steps.size() + instance.step;
  }

  // For the trace. While the instance is not done.
  CallTrace::Part PartOf(Instance instance, std::uint64_t bytes) const {
    const Transfer& transfer = flow.step(instance).transfer;
    return {instance.step, flow.subchunk(instance),
            transfer.has_peer() ? transfer.peer : TraceEvent::kNoPeer, bytes};
  }

  // Where the source of `instance` lies, and its operand: valid until the next
  // call of the same function.
  std::span<const Memory> SourceOf(Instance instance) {
    return PiecesOf(flow.step(instance).source, instance, source_pieces);
  }
  std::span<const Memory> OperandOf(Instance instance) {
    return PiecesOf(flow.step(instance).operand, instance, operand_pieces);
  }
  // The message that has arrived for it.
  Memory ReceivedFor(Instance instance) const {
    if (flow.IsNoMessage(instance)) {
      return {};
    }
    const Received& message = received[Index(instance)];
    return {const_cast<std::byte*>(message.data), message.bytes};
  }
  // The value in the slot that the instance has acquired.
  Memory InSlot(Instance instance) const {
    return {pool->data(flow.slot(instance)),
            BytesOf(flow.step(instance).transfer.chunks(), instance),
            HandleOfSlots(instance)};
  }
  // A place in user memory, by what lies together: valid until the next call.
  std::span<const Memory> InMemory(Place place, Instance instance) {
    target_pieces.clear();
    AddInMemory(place, instance, target_pieces);
    return target_pieces;
  }
  // Where a message for `instance` goes, and how long it may be.
  Memory TargetOf(Instance instance) {
    const Step& step = flow.step(instance);
    if (step.arrival == Step::Arrival::kAtPeer) {
      return {.on_device = step.device_reads};
    }
    return step.arrival == Step::Arrival::kInTarget
               ? InMemory(step.transfer.target, instance)[0]
               : Memory{pool->data(flow.slot(instance)),
                        static_cast<std::uint32_t>(pool->slot_bytes()),
                        HandleOfSlots(instance)};
  }
  std::uint32_t BytesOf(Place place, Instance instance) const {
    return operation->BytesOf(place, flow.subchunk(instance));
  }

  // What a reduction does besides, by what its operands are.
  Scaling ScalingOf(const Step& step, bool own_unscaled,
                    bool received_unscaled) const {
    return {.own = own_unscaled ? operation->prescale : 1,
            .received = received_unscaled ? operation->prescale : 1,
            .complete = step.transfer.finish ? size : 0,
            .result = step.transfer.finish ? operation->postscale : 1};
  }

  // Room for what SourceOf, OperandOf and InMemory return: for the running
  // collective.
  void MakeRoomForPieces() {
    std::size_t most = operation->plan->most_pieces + 1;
    for (const UserBuffer* const buffer :
         {&operation->input, &operation->output}) {
      most += buffer->list == nullptr ? 0 : buffer->list->pieces().size();
    }
    for (std::vector<Memory>* const room :
         {&source_pieces, &operand_pieces, &target_pieces}) {
      room->reserve(most);
    }
  }
  std::vector<Memory> source_pieces, operand_pieces, target_pieces;

 private:
  // That by which the instance sends or receives; -1: it does neither.
  int TransportOf(Instance instance) const {
    const Transfer& transfer = flow.step(instance).transfer;
    return transfer.has_peer() ? transports.Of(transfer.peer) : -1;
  }
  MemoryHandle HandleOfSlots(Instance instance) const {
    const int transport = TransportOf(instance);
    return transport < 0 ? nullptr : slot_handles[transport];
  }
  std::span<const Memory> PiecesOf(const std::vector<Step::Piece>& pieces,
                                   Instance instance,
                                   std::vector<Memory>& room) const {
    room.clear();
    for (const Step::Piece& piece : pieces) {
      if (piece.step < 0) {
        AddInMemory(piece.place, instance, room, piece.unscaled);
      } else {
        room.push_back(InSlotOf(piece, instance));
      }
    }
    return room;
  }

  void AddInMemory(Place place, Instance instance, std::vector<Memory>& room,
                   bool unscaled = false) const {
    const UserBuffer& buffer = place.buffer == Place::Buffer::kInput
                                   ? operation->input
                                   : operation->output;
    const int transport = TransportOf(instance);
    const MemoryHandle handle =
        transport < 0 ? nullptr : buffer.reached[transport].handle;
    const std::uint64_t bytes = SizeOf(operation->type);
    const auto [first, rest] = operation->ChunkingOf(place).Range(
        place.chunk, place.count, flow.subchunk(instance));
    for (const Extent& extent : {first, rest}) {
      if (buffer.list != nullptr) {
        buffer.list->ForEach(
            extent.begin * bytes, extent.count * bytes,
            [&](std::byte* data, std::uint64_t length, bool on_device) {
              room.push_back({data, static_cast<std::uint32_t>(length), nullptr,
                              unscaled, on_device});
            });
      } else if (extent.count > 0 || room.empty()) {
        room.push_back(
            {reinterpret_cast<std::byte*>(buffer.base + extent.begin * bytes),
             static_cast<std::uint32_t>(extent.count * bytes), handle, unscaled,
             buffer.on_device});
      }
    }
  }

  Memory InSlotOf(const Step::Piece& piece, Instance instance) const {
    return {pool->data(flow.slot_of(instance, piece.step)) +
                operation->OffsetOf(piece, flow.subchunk(instance)),
            BytesOf(piece.place, instance), HandleOfSlots(instance)};
  }
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_PIPELINE_STATE_H_
