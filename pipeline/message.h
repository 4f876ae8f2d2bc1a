// What goes between two ranks.
//
// Over the data queue pair of a rail, SEND: sub-chunks and nothing else, each
// into the receive that was posted for it. Over the control queue pair:
//
//   SEND kDigest     what I think we are doing
//   SEND kSleep      I have no credit and go to sleep
//   SEND kWake       to a sender that sleeps, after a WRITE of new credit
//   WRITE (8 bytes)  the receiver's grant counter into the sender's credit
//                    word: no completion there
//   WRITE (0 bytes)  a probe, also on data queue pairs: is the peer alive?
//
// Nothing uses immediate data, which iWARP does not have. Data follow when the
// peer's digest has come and is equal: no message meets a receive that was made
// for another call.
//
// The receives of a control queue pair (kControlReceives):
//
//   2 digests   a peer may be one collective ahead: it sends the next one's
//               digest when it has this one's data, which I have sent but whose
//               digest I may not have looked at; it gets no further before I do
//   1 sleep     one is outstanding at most: the next follows the answer
//   1 wake      it answers my one sleep
#ifndef RINGPIPE_PIPELINE_MESSAGE_H_
#define RINGPIPE_PIPELINE_MESSAGE_H_

#include <cstdint>

namespace ringpipe {

inline constexpr int kControlReceives = 4;

// The identity of a collective call. All ranks must have the same one for the
// same sequence number. Plain data between ranks of one version.
struct Digest {
  std::uint64_t sequence = 0;  // calls on this communicator, from 0
  std::uint64_t count = 0;     // elements, as the caller gave them
  std::uint32_t collective = 0;
  std::uint32_t algorithm = 0;
  std::uint32_t type = 0;
  std::uint32_t op = 0;
  std::uint32_t root = 0;
  std::uint32_t depth = 0;
  std::uint64_t subchunk_elements = 0;

  bool operator==(const Digest&) const = default;
};

struct ControlMessage {
  enum class Kind : std::uint64_t { kDigest = 1, kSleep = 2, kWake = 3 };
  Kind kind = Kind::kDigest;
  Digest digest;                  // kDigest
  std::uint64_t seen_grants = 0;  // kSleep: the last counter that I saw
};
static_assert(sizeof(ControlMessage) == 64,
              "a cache line, no padding, and inline on every known device");

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_MESSAGE_H_
