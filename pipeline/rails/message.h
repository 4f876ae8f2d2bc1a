// What goes between two ranks over rails.
//
// Over the data queue pair of a rail, SEND: sub-chunks and nothing else, each
// into the receive that was posted for it. Over the control queue pair:
//
//   SEND kCall       what I think we are doing, how many receives I have
//                    posted, and the eager message where there is one; where
//                    that is not ready in time, a second kCall brings it
//   SEND kSleep      I have no credit and go to sleep
//   SEND kWake       to a sender that sleeps, after a WRITE of new credit
//   WRITE (8 bytes)  how many receives were posted, into the sender's credit
//                    word: no completion there
//   WRITE (0 bytes)  a probe, also on data queue pairs: is the peer alive?
//
// Nothing uses immediate data, which iWARP does not have. Data follow when the
// peer's kCall has come and is equal: no message meets a receive that was made
// for another call.
//
// The smallest number of receives on a control queue pair (kControlReceives),
// so that each message finds one:
//
//   4  two calls' kCall, twice each. A peer may be one call ahead: it ends this
//      one when it has all of mine, and I may not have looked at its own. It
//      gets no further, because it needs my next kCall, which I send when this
//      call has ended: then I have taken both of its messages of this call.
//   1  kSleep: the next follows the answer to the one before
//   1  kWake: it answers my one kSleep
#ifndef RINGPIPE_PIPELINE_RAILS_MESSAGE_H_
#define RINGPIPE_PIPELINE_RAILS_MESSAGE_H_

#include <cstddef>
#include <cstdint>

#include "pipeline/call_check.h"

namespace ringpipe {

inline constexpr int kControlReceives = 6;

// What stands before an eager message, and all of any other control message.
struct ControlHeader {
  enum class Kind : std::uint16_t { kCall = 1, kSleep = 2, kWake = 3 };
  Kind kind = Kind::kCall;
  std::uint16_t has_payload = 0;   // kCall; it may be of no bytes
  std::uint32_t communicator = 0;  // of those that use the connection: one yet
  // kCall: receives that I have posted since the beginning. kSleep: the last
  // such counter of yours that I saw.
  std::uint64_t credits = 0;
  Digest digest = {};  // kCall
};
static_assert(sizeof(ControlHeader) == 64,
              "a cache line, no padding, and inline on every known device");

// The largest eager message. One page: what is larger is long enough on the
// wire that credit comes in time.
inline constexpr std::uint32_t kEagerBytes = 4096;
inline constexpr std::size_t kControlBytes =
    sizeof(ControlHeader) + kEagerBytes;

// Inline where the device can: a header and two words, which is what Linux's
// siw has.
inline constexpr int kInlineBytes = sizeof(ControlHeader) + 16;

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_RAILS_MESSAGE_H_
