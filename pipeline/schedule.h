// A collective algorithm as data: what one rank sends, receives, reduces and
// copies, chunk by chunk. Knows nothing of verbs, accelerators, bytes or types.
#ifndef RINGPIPE_PIPELINE_SCHEDULE_H_
#define RINGPIPE_PIPELINE_SCHEDULE_H_

#include <compare>
#include <span>
#include <string>
#include <vector>

namespace ringpipe {

// Where a transfer reads or writes: a range of chunks of one of three buffers.
//
// Chunk c of kInput or kOutput is the c-th of Schedule::chunks parts of the
// message; a rank whose buffer holds but one chunk (an all-gather's input) has
// that chunk alone. kScratch is the schedule's own; it lives in the registered
// slots in which its values arrive. Its chunk i is as long as chunk i modulo
// `chunks` of the message, of which it so has several copies, or banks.
//
// After the last chunk (of the bank) a range goes on at the first.
struct Place {
  enum class Buffer { kInput, kOutput, kScratch };
  Buffer buffer = Buffer::kInput;
  int chunk = 0;  // the first
  int count = 1;

  auto operator<=>(const Place&) const = default;

  // The chunk at a position of the range, which is a range by itself.
  Place At(int position, int chunks) const {
    return {buffer, chunk - chunk % chunks + (chunk + position) % chunks, 1};
  }
};

constexpr Place Input(int chunk, int count = 1) {
  return {Place::Buffer::kInput, chunk, count};
}
constexpr Place Output(int chunk, int count = 1) {
  return {Place::Buffer::kOutput, chunk, count};
}
constexpr Place Scratch(int chunk, int count = 1) {
  return {Place::Buffer::kScratch, chunk, count};
}

// One step of one rank; all its places are the same chunks, unless all chunks
// are equally long. Two orders hold between transfers: those that touch a chunk
// of the same buffer take effect in schedule order, and those to (or from) the
// same peer are in schedule order on the wire. Everything else may overlap.
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
  static Transfer ReceiveReduce(Place source, Place target, int peer,
                                bool finish = false) {
    return {Kind::kReceiveReduce, source, target, peer, finish};
  }
  static Transfer ReceiveCopy(Place target, int peer) {
    return {Kind::kReceiveCopy, {}, target, peer, false};
  }
  static Transfer LocalCopy(Place source, Place target) {
    return {Kind::kLocalCopy, source, target, -1, false};
  }
  static Transfer LocalReduce(Place source, Place operand, Place target,
                              bool finish = false) {
    return {Kind::kLocalReduce, source, target, -1, finish, operand};
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
  // The chunks that it moves.
  Place chunks() const { return reads() ? source : target; }
  int count() const { return chunks().count; }
};

// What one rank does for every sub-chunk of the message.
struct Schedule {
  int chunks = 1;   // the message is divided into
  int scratch = 0;  // chunks of scratch
  std::vector<Transfer> transfers = {};
  // Relies on chunks that are all equally long, as where the interface ties
  // them to ranks: what is one chunk here may be another one there.
  bool equal_chunks = false;
};

// For whom a schedule is.
struct Member {
  int rank = 0;
  int size = 1;
  int root = 0;  // where the collective has one
  // By rank: which host it is on, any number. Empty: no two share one.
  std::span<const int> hosts = {};
};

// A collective algorithm: one rank's schedule. A pure function.
using Algorithm = Schedule (*)(const Member& self);

// The same by messages of one chunk each.
Schedule SplitRanges(const Schedule& schedule);

// Whether this rank's first messages to its peers are one value: all are sent
// from one place, and nothing is written meanwhile.
bool SaysTheSameToAll(const Schedule& schedule);

// "send input[2] -> rank 1"; "input[6, 3]": 3 chunks from there; for messages.
std::string ToString(const Transfer& transfer);

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_SCHEDULE_H_
