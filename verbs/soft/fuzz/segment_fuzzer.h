#ifndef RINGPIPE_VERBS_SOFT_FUZZ_SEGMENT_FUZZER_H_
#define RINGPIPE_VERBS_SOFT_FUZZ_SEGMENT_FUZZER_H_

#include <cstddef>
#include <cstdint>

namespace ringpipe::verbs::soft {

// An input is a byte of options and then a program: operations, each with its
// operands, for a context (the victim) and a peer that does what it likes with
// the segments of both and with the sockets between them. Queue pairs are named
// by a SegmentQueuePair.
enum SegmentOption : std::uint8_t {
  kRetryForEver = 1,  // where the peer has no receive
  kSlotsOnly = 2,     // as if the kernel forbade to reach the peer's memory
};

enum SegmentQueuePair : std::uint8_t { kReliable, kShared, kUnreliable, kUd };
inline constexpr std::uint32_t kSegmentQueuePairs = 4;

enum class SegmentOp : std::uint8_t {
  // The peer. Operands of kStore: segment:1 (0: the victim's), SegmentArea:1,
  // queue pair:1, offset:2, StoreKind:1, value:1, 4 or 8 by the kind.
  kStore,
  kComplete,  // a receive, by the rules. queue pair:1, bytes:2
  kFillSlot,  // queue pair:1, kind:1, access:1, offset:4, bytes:4
  kAnswer,    // by the rules, whoever wants to be attached
  kRespond,   // file:1 twice, then as kRequest
  kRequest,   // file:1, bytes:1 of a LinkMessage, those bytes
  kDatagram,  // bytes:1 of a DatagramHeader, those bytes, bytes:2 of payload
  kHangUp,    // as responder:1 (0: as requester)
  // The victim.
  kPostReceive,  // queue pair:1, sges:1, bytes:2
  kPostSend,     // queue pair:1, opcode:1, flags:1, memory:1, bytes:2,
                 // remote key:1, remote offset:4
  kPoll,         // completion queue:1, count:1
  kArm,          // completion queue:1, solicited:1
  kTakeEvents,
  kModify,  // queue pair:1, state:1
  kQuery,   // queue pair:1
  kHousekeep,
  kReregister,
  kLimit,  // of the shared receive queue:1
  kOps,
};

enum class SegmentArea : std::uint8_t {
  kHeader,
  kQueuePairFields,
  kReceiveCompletions,
  kCompletionQueueFields,
  kReceiveRing,
  // Of OwnedLayout: a peer can only write to its own.
  kFirstOwned,
  kOwnedQueuePairFields = kFirstOwned,
  kReceives,
  kOwnedRing,
  kSharedReceives,
  kRegions,
  kAreas,
};

enum class StoreKind : std::uint8_t { kByte, kWord, kDoubleWord, kAdd, kKinds };

// Runs the input. Aborts if the victim returns a completion of what was not
// posted, or twice, or one that tells of what cannot be.
void FuzzSegment(const std::uint8_t* data, std::size_t size);

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_FUZZ_SEGMENT_FUZZER_H_
