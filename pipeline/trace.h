// What one rank's pipeline did, and when: for a timeline (docs/timeline.md).
#ifndef RINGPIPE_PIPELINE_TRACE_H_
#define RINGPIPE_PIPELINE_TRACE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/deadline.h"
#include "pipeline/call_check.h"

namespace ringpipe {

// Where an event belongs: a call, a stage of the pipeline, or what the rank's
// thread does besides the stages. The numbers are part of what ranks send to
// each other.
enum class TraceTrack : std::uint8_t {
  kCall,
  kAcquire,  // only for waits: for a free slot
  kCopyIn,
  kRegister,
  kSend,
  kReceive,
  kReduce,
  kCopyOut,
  kTransport,  // the thread posts messages, or takes what has arrived
  kWait,
};
inline constexpr int kTraceTracks = 10;

// "copy in"; "unknown" for a number that is no track.
const char* Name(TraceTrack track);

// One event. Times are Clock's, in nanoseconds. Plain data between ranks of one
// version.
struct TraceEvent {
  static constexpr std::int32_t kNoPeer = -1;

  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::uint64_t call = 0;  // Digest::sequence
  std::uint64_t bytes = 0;
  std::uint64_t subchunk = 0;
  std::uint64_t detail = 0;  // of a call: see ForCall
  std::uint32_t step = 0;    // of the plan
  std::int32_t peer = kNoPeer;
  // Of a message: how many went the same way between the same two ranks before
  // it, in this call.
  std::uint32_t message = 0;
  TraceTrack track = TraceTrack::kCall;
  TraceTrack waits_for = TraceTrack::kCall;  // of a wait: for which stage
  std::uint8_t failed = 0;                   // of a call; else 0
  std::uint8_t unused = 0;

  // A call and its arguments, which digest() gives back.
  static TraceEvent ForCall(const Digest& digest);
  Digest digest() const;

  bool operator==(const TraceEvent&) const = default;
};

// The last events of one rank, in memory that is allocated once. One thread at
// a time records; any thread reads, also meanwhile.
class Trace {
 public:
  // Keeps the last `capacity` events (at least 1), 64 bytes each.
  explicit Trace(std::size_t capacity);

  // Replaces the oldest event if there is no room.
  void Record(const TraceEvent& event) noexcept;

  struct Contents {
    std::vector<TraceEvent> events;  // in the order of Record
    std::uint64_t dropped = 0;       // older ones that were replaced
  };
  Contents Read() const;

 private:
  using Words = std::array<std::uint64_t, sizeof(TraceEvent) / 8>;
  static_assert(sizeof(TraceEvent) == 64, "a cache line, without padding");

  // Stored and loaded word by word, because a reader may come in between.
  struct alignas(64) Slot {
    std::array<std::atomic<std::uint64_t>, sizeof(Words) / 8> words = {};
  };

  // One more than are kept: it is being written while the others are read.
  const std::size_t slots_;
  const std::unique_ptr<Slot[]> ring_;
  std::atomic<std::uint64_t> recorded_ = 0;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_TRACE_H_
