// A collective algorithm as data: what one rank sends, receives, reduces and
// copies, chunk by chunk. Knows nothing of verbs, accelerators, bytes or types.
#ifndef RINGPIPE_PIPELINE_SCHEDULE_H_
#define RINGPIPE_PIPELINE_SCHEDULE_H_

#include <compare>
#include <string>
#include <vector>

namespace ringpipe {

// Where a transfer reads or writes: a chunk of one of three buffers. Chunk c of
// kInput or kOutput is the c-th of Schedule::chunks contiguous parts of the
// whole message; a rank whose buffer holds but one chunk (an all-gather's
// input) has that chunk alone. kScratch is the schedule's own; it lives in the
// registered slots in which its values arrive.
struct Place {
  enum class Buffer { kInput, kOutput, kScratch };
  Buffer buffer = Buffer::kInput;
  int chunk = 0;

  auto operator<=>(const Place&) const = default;
};

constexpr Place Input(int chunk) { return {Place::Buffer::kInput, chunk}; }
constexpr Place Output(int chunk) { return {Place::Buffer::kOutput, chunk}; }
constexpr Place Scratch(int chunk) { return {Place::Buffer::kScratch, chunk}; }

// One step of one rank. Two orders hold between transfers: those that touch the
// same place take effect in schedule order, and those to (or from) the same
// peer are in schedule order on the wire. Everything else may overlap.
//
// Of a reduction's two operands the source is the first; but where two ranks
// exchange values (the source went to the peer, which reduces it as well), the
// lower rank's is.
struct Transfer {
  enum class Kind {
    kSend,           // source -> peer
    kReceiveReduce,  // target = source OP received (see below)
    kReceiveCopy,    // target = received
    kLocalCopy,      // target = source
    kLocalReduce,    // target = source OP operand
  };
  Kind kind = Kind::kSend;
  Place source = {};
  Place target = {};
  int peer = -1;
  // Of a reduction: the contributions are complete, so the operation's
  // finishing step (the division of an average) follows.
  bool finish = false;
  Place operand = {};  // kLocalReduce

  auto operator<=>(const Transfer&) const = default;

  static Transfer Send(Place source, int peer) {
    return {Kind::kSend, source, {}, peer, false};
  }
  static Transfer ReceiveReduce(Place source, Place target, int peer) {
    return {Kind::kReceiveReduce, source, target, peer, false};
  }
  static Transfer ReceiveReduceLast(Place source, Place target, int peer) {
    return {Kind::kReceiveReduce, source, target, peer, true};
  }
  static Transfer ReceiveCopy(Place target, int peer) {
    return {Kind::kReceiveCopy, {}, target, peer, false};
  }
  static Transfer LocalCopy(Place source, Place target) {
    return {Kind::kLocalCopy, source, target, -1, false};
  }
  static Transfer LocalReduce(Place source, Place operand, Place target) {
    return {Kind::kLocalReduce, source, target, -1, false, operand};
  }

  bool receives() const {
    return kind == Kind::kReceiveReduce || kind == Kind::kReceiveCopy;
  }
  bool has_peer() const { return kind == Kind::kSend || receives(); }
  bool reduces() const {
    return kind == Kind::kReceiveReduce || kind == Kind::kLocalReduce;
  }
  bool reads() const { return kind != Kind::kReceiveCopy; }
  bool writes() const { return kind != Kind::kSend; }
};

// What one rank does for every sub-chunk of the message.
struct Schedule {
  int chunks = 1;   // the message is divided into
  int scratch = 0;  // scratch places
  std::vector<Transfer> transfers;
};

// A collective algorithm: the schedule of `rank` among `size` ranks; `root`
// matters where the collective has one. A pure function.
using Algorithm = Schedule (*)(int rank, int size, int root);

// "send input[2] -> rank 1", for messages.
std::string ToString(const Transfer& transfer);

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_SCHEDULE_H_
