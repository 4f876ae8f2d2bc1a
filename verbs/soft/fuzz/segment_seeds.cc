// Programs for segment_fuzzer that get far: see SegmentOp for the operands.
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "verbs/soft/fuzz/hostile_peer.h"
#include "verbs/soft/fuzz/seeds.h"
#include "verbs/soft/fuzz/segment_fuzzer.h"
#include "verbs/soft/layout.h"

namespace ringpipe::verbs::soft {
namespace {

template <typename T>
std::string Bytes(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string Do(SegmentOp op, std::initializer_list<std::uint8_t> operands) {
  std::string all = Bytes(op);
  for (const std::uint8_t operand : operands) {
    all += Bytes(operand);
  }
  return all;
}

std::string PostReceive(SegmentQueuePair qp, std::uint16_t bytes) {
  return Do(SegmentOp::kPostReceive, {qp, 2}) + Bytes(bytes);
}

std::string PostSend(SegmentQueuePair qp, ibv_wr_opcode opcode,
                     std::uint16_t bytes, std::uint8_t key = 0) {
  return Do(SegmentOp::kPostSend,
            {qp, static_cast<std::uint8_t>(opcode), IBV_SEND_SIGNALED, 0}) +
         Bytes(bytes) + Bytes(key) + Bytes(std::uint32_t{64});
}

std::string Complete(SegmentQueuePair qp, std::uint16_t bytes) {
  return Do(SegmentOp::kComplete, {qp}) + Bytes(bytes);
}

std::string Poll() {
  return Do(SegmentOp::kPoll, {0, 8}) + Do(SegmentOp::kPoll, {1, 8});
}

std::string Store(bool of_victim, SegmentArea area, SegmentQueuePair qp,
                  std::size_t offset, std::uint32_t value) {
  return Do(SegmentOp::kStore, {static_cast<std::uint8_t>(of_victim ? 0 : 1),
                                static_cast<std::uint8_t>(area), qp}) +
         Bytes(static_cast<std::uint16_t>(offset)) + Bytes(StoreKind::kWord) +
         Bytes(value);
}

std::string ToState(SegmentQueuePair qp, ibv_qp_state state) {
  return Do(SegmentOp::kModify, {qp, static_cast<std::uint8_t>(state)});
}

std::string AllSends(std::uint8_t key) {
  std::string all;
  for (const ibv_wr_opcode opcode :
       {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
        IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP,
        IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND_WITH_IMM}) {
    for (const SegmentQueuePair qp : {kReliable, kShared, kUnreliable, kUd}) {
      all += PostSend(qp, opcode, 1000, key);
    }
  }
  return all + Poll();
}

std::string Receives(SegmentQueuePair qp) {
  return PostReceive(qp, 100) + PostReceive(qp, 0) + Complete(qp, 50) + Poll() +
         Complete(qp, 0) + Poll();
}

std::string Slots() {
  std::string all;
  constexpr int kAccess[] = {IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ,
                             IBV_ACCESS_REMOTE_ATOMIC,
                             IBV_ACCESS_REMOTE_ATOMIC};
  for (std::uint8_t kind = 0; kind < 4; ++kind) {
    all += Do(SegmentOp::kFillSlot,
              {kReliable, kind, static_cast<std::uint8_t>(kAccess[kind])}) +
           Bytes(std::uint32_t{64}) + Bytes(std::uint32_t{8});
  }
  return all + Do(SegmentOp::kHousekeep, {});
}

std::string Links() {
  const std::string round = Do(SegmentOp::kHousekeep, {});
  std::string all = Do(SegmentOp::kRequest, {HostilePeer::kNoFile, 0}) + round +
                    Do(SegmentOp::kHangUp, {0}) + round;
  for (std::uint8_t file = 0; file < HostilePeer::kFiles; ++file) {
    all += Do(SegmentOp::kRespond,
              {HostilePeer::kOwned, HostilePeer::kShared, file, 0}) +
           round + PostSend(kReliable, IBV_WR_SEND, 8);
  }
  return all + Do(SegmentOp::kHangUp, {1}) + round + Poll() +
         Do(SegmentOp::kAnswer, {}) + round + Poll();
}

std::string Datagrams() {
  return PostReceive(kUd, 500) + Do(SegmentOp::kDatagram, {0}) +
         Bytes(std::uint16_t{300}) + Do(SegmentOp::kArm, {1, 0}) + Poll() +
         PostReceive(kUd, 500) + PostSend(kUd, IBV_WR_SEND_WITH_IMM, 100) +
         Poll() + Do(SegmentOp::kTakeEvents, {});
}

std::string Errors(SegmentQueuePair qp) {
  return PostReceive(qp, 10) + PostReceive(qp, 10) +
         Do(SegmentOp::kArm, {0, 0}) +
         Store(true, SegmentArea::kQueuePairFields, qp,
               offsetof(SharedQueuePair, fault), IBV_EVENT_QP_ACCESS_ERR + 1) +
         Store(true, SegmentArea::kHeader, qp, 0, 1) +
         Do(SegmentOp::kHousekeep, {}) + Do(SegmentOp::kTakeEvents, {}) +
         Poll() + PostReceive(qp, 10) + Poll() + ToState(qp, IBV_QPS_RESET) +
         ToState(qp, IBV_QPS_INIT) + PostReceive(qp, 10) +
         ToState(qp, IBV_QPS_RTR) + Complete(qp, 10) +
         ToState(qp, IBV_QPS_RTS) + Poll() + Do(SegmentOp::kQuery, {qp}) +
         Do(SegmentOp::kReregister, {});
}

// The responder goes while a WRITE of UC is on its way through slots, and comes
// again for one that is shorter.
std::string LostInSlots() {
  const auto to_state = [](ibv_qp_state state) {
    return Store(false, SegmentArea::kOwnedQueuePairFields, kUnreliable,
                 offsetof(OwnedQueuePair, state), state);
  };
  return PostSend(kUnreliable, IBV_WR_RDMA_WRITE, 1000, 1) +
         Do(SegmentOp::kAnswer, {}) + Do(SegmentOp::kHousekeep, {}) +
         to_state(IBV_QPS_RESET) +
         PostSend(kUnreliable, IBV_WR_RDMA_WRITE, 1000, 1) + Poll() +
         to_state(IBV_QPS_RTS) +
         PostSend(kUnreliable, IBV_WR_RDMA_WRITE, 8, 1) + Poll();
}

// Each word of what a peer may write, wrong in turn, between a post and a poll.
void AddStores(SegmentArea area, SegmentQueuePair qp, std::size_t end,
               std::vector<std::string>* seeds) {
  for (std::size_t offset = 0; offset < end; offset += 4) {
    if (area < SegmentArea::kFirstOwned) {
      seeds->push_back(
          Bytes(std::uint8_t{0}) + Receives(qp) + PostReceive(qp, 100) +
          Store(true, area, qp, offset, 0x40000003) + Complete(qp, 9) +
          Do(SegmentOp::kHousekeep, {}) + Poll());
    }
    seeds->push_back(Bytes(std::uint8_t{kSlotsOnly}) +
                     Store(false, area, qp, offset, 0x40000003) + AllSends(0) +
                     AllSends(1));
  }
}

}  // namespace

std::vector<std::string> SegmentSeeds() {
  std::vector<std::string> seeds;
  for (const std::uint8_t options :
       {std::uint8_t{0}, std::uint8_t{kRetryForEver}, std::uint8_t{kSlotsOnly},
        std::uint8_t{kRetryForEver | kSlotsOnly}}) {
    for (const std::string& program :
         {AllSends(0), AllSends(1), AllSends(2), Receives(kReliable),
          Receives(kShared) + Do(SegmentOp::kLimit, {4}), Receives(kUnreliable),
          Slots(), LostInSlots(), Links(), Datagrams(), Errors(kReliable),
          Errors(kShared), Errors(kUnreliable)}) {
      seeds.push_back(Bytes(options) + program);
    }
  }
  for (const SegmentQueuePair qp : {kReliable, kShared}) {
    AddStores(SegmentArea::kQueuePairFields, qp, sizeof(SharedQueuePair),
              &seeds);
    AddStores(SegmentArea::kReceiveCompletions, qp,
              2 * sizeof(ReceiveCompletion), &seeds);
    AddStores(SegmentArea::kOwnedQueuePairFields, qp, sizeof(OwnedQueuePair),
              &seeds);
    AddStores(SegmentArea::kReceives, qp, 2 * sizeof(ScatterList), &seeds);
    AddStores(SegmentArea::kCompletionQueueFields, qp, 192, &seeds);
  }
  AddStores(SegmentArea::kReceiveRing, kShared,
            offsetof(SharedReceiveRing, words) + 32, &seeds);
  AddStores(SegmentArea::kOwnedRing, kShared,
            offsetof(OwnedReceiveRing, receives), &seeds);
  AddStores(SegmentArea::kSharedReceives, kShared, sizeof(ScatterList), &seeds);
  AddStores(SegmentArea::kRegions, kReliable, 2 * sizeof(OwnedRegion), &seeds);
  return seeds;
}

}  // namespace ringpipe::verbs::soft
