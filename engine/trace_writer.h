#ifndef RINGPIPE_ENGINE_TRACE_WRITER_H_
#define RINGPIPE_ENGINE_TRACE_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/status.h"
#include "pipeline/trace.h"

namespace ringpipe {

// Writes a trace file: JSON in the Trace Event format, which Perfetto and
// chrome://tracing open. docs/timeline.md says what is in it.
//
// A rank is a process of the format, with its number as pid. The work of its
// thread is complete events ("X"), one thread of the format for each track.
// Messages overlap, which events of a thread must not: each is a pair of
// asynchronous events ("b", "e") with an id of its own. Times are microseconds
// of rank 0's clock, with three decimals.
class TraceWriter {
 public:
  // A rank whose events are in the file.
  struct Source {
    int rank = 0;
    std::string host;
    std::uint64_t pid = 0;
    std::uint64_t dropped = 0;        // events that are not there any more
    std::int64_t clock_ahead_ns = 0;  // of rank 0's
    std::int64_t clock_error_ns = 0;  // at most
  };
  struct Run {
    std::uint64_t id = 0;  // the same in all files of a communicator
    int size = 0;
    bool aligned = false;  // whether clock_ahead_ns is known
  };

  // An error that names the path if nothing can be written there.
  static Result<TraceWriter> Create(const std::string& path, const Run& run,
                                    std::span<const Source> sources);

  // The next events of a source, in the order of Trace::Read.
  Status Add(const Source& source, std::span<const TraceEvent> events);
  // Ends the file, which is there from then on.
  Status Finish();

 private:
  explicit TraceWriter(AtomicFile file) : file_(std::move(file)) {}

  void BeginEvent(const Source& source, const char* phase, TraceTrack track);
  void AddHeader(const Run& run, std::span<const Source> sources);
  void AddProcess(const Source& source);
  void AddDropped(const Source& source, const TraceEvent& first);
  void AddEvent(const Source& source, const TraceEvent& event);
  void AddCall(const TraceEvent& event);
  void AddPart(const TraceEvent& event);
  void AddMessage(const Source& source, const TraceEvent& event);
  Status Flush(std::size_t from_bytes);

  AtomicFile file_;
  std::string text_;  // not written yet
  bool first_event_ = true;
  std::vector<bool> begun_;         // by rank: whether it has an event
  std::uint64_t next_message_ = 0;  // id
};

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_TRACE_WRITER_H_
