#ifndef RINGPIPE_PIPELINE_CALL_TRACE_H_
#define RINGPIPE_PIPELINE_CALL_TRACE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/deadline.h"
#include "pipeline/call_check.h"
#include "pipeline/trace.h"

namespace ringpipe {

// Records the running call of one rank in its trace. One thread at a time.
//
// Work on one track does not overlap: an accelerator does one thing after the
// other, so what was started early begins when the one before it ends.
// Messages do overlap: each is under way from MessageBegins to MessageEnds.
class CallTrace {
 public:
  // A part of the call that a stage works on, or sends or receives.
  struct Part {
    std::uint32_t step = 0;
    std::uint64_t subchunk = 0;
    int peer = TraceEvent::kNoPeer;
    std::uint64_t bytes = 0;
  };

  // `trace` outlives this object; `size`: the number of ranks.
  CallTrace(Trace& trace, int size)
      : trace_(trace), sent_(size), expected_(size) {}

  void Begin(const Digest& digest);
  // For messages whose `index` is below `messages`. Allocates only where that
  // is more than ever before.
  void MakeRoom(std::size_t messages);
  void End(bool ok);

  void Work(TraceTrack track, const Part& part, Clock::time_point begin,
            Clock::time_point end);
  // The thread was in a transport, where something happened.
  void InTransport(Clock::time_point begin, Clock::time_point end);
  // The rank had nothing to do but wait for a stage.
  void Waited(TraceTrack waits_for, Clock::time_point begin,
              Clock::time_point end);

  // `track`: kSend or kReceive.
  void MessageBegins(TraceTrack track, std::size_t index, int peer);
  void MessageEnds(TraceTrack track, std::size_t index, const Part& part);

 private:
  struct Message {
    Clock::time_point begin = {};
    std::uint32_t number = 0;
  };

  TraceEvent Event(TraceTrack track, Clock::time_point begin,
                   Clock::time_point end) const;

  Trace& trace_;
  Digest digest_;
  Clock::time_point begin_ = {};
  std::array<Clock::time_point, kTraceTracks> ends_ = {};  // of the last work
  std::vector<Message> messages_;                          // by index
  std::vector<std::uint32_t> sent_, expected_;             // by peer: messages
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_CALL_TRACE_H_
