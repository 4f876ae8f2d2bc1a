// What goes over a queue pair between two ranks.
//
//   SEND with immediate kData     a sub-chunk, credit taken
//   SEND with immediate kDigest   Digest: what I think we are doing
//   SEND with immediate kSleep    SleepNotice: I have no credit and go to sleep
//   WRITE (8 bytes)               the receiver's grant counter into the
//                                 sender's credit word: no completion there
//   WRITE with immediate kWake    the same, to a sender that sleeps
//   WRITE (0 bytes)               a probe: is the connection alive?
//
// Receives are consumed in the order in which they were posted, whatever
// arrives, so control messages land in slots like data, and kControlReceives of
// them are posted beyond what was granted:
//
//   2 digests   a peer may be one collective ahead: it sends the next one's
//               digest when it has this one's data, which I have sent but whose
//               digest I may not have looked at; it gets no further before I do
//   1 sleep     one is outstanding at most: the next follows the answer
//   1 wake      it answers my one sleep
#ifndef RINGPIPE_PIPELINE_MESSAGE_H_
#define RINGPIPE_PIPELINE_MESSAGE_H_

#include <array>
#include <cstdint>
#include <string>

namespace ringpipe {

enum class MessageKind : std::uint32_t {
  kData = 1,
  kDigest = 2,
  kSleep = 3,
  kWake = 4,
};

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

struct SleepNotice {
  std::uint64_t seen_grants = 0;  // the last counter that the sender saw
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_MESSAGE_H_
