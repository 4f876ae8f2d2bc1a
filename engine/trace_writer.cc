#include "engine/trace_writer.h"

#include <cinttypes>
#include <cstdio>
#include <string_view>
#include <utility>

#include "engine/checked_call.h"
#include "reduction/data_type.h"

namespace ringpipe {
namespace {

constexpr std::size_t kFlushBytes = 1 << 20;

// As the contents of a JSON string.
std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      escaped += '?';
      continue;
    }
    if (c == '"' || c == '\\') {
      escaped += '\\';
    }
    escaped += c;
  }
  return escaped;
}

// Nanoseconds as microseconds.
std::string Microseconds(std::int64_t ns) {
  char text[32];
  const std::uint64_t size = ns < 0 ? 0 - static_cast<std::uint64_t>(ns)
                                    : static_cast<std::uint64_t>(ns);
  std::snprintf(text, sizeof text, "%s%" PRIu64 ".%03d", ns < 0 ? "-" : "",
                size / 1000, static_cast<int>(size % 1000));
  return text;
}

std::string Number(const char* key, std::uint64_t value) {
  return std::string(",\"") + key + "\":" + std::to_string(value);
}

std::string Text(const char* key, std::string_view value) {
  return std::string(",\"") + key + "\":\"" + Escaped(value) + "\"";
}

std::string Times(const TraceWriter::Source& source, const TraceEvent& event) {
  return ",\"ts\":" + Microseconds(event.begin_ns - source.clock_ahead_ns) +
         ",\"dur\":" + Microseconds(event.end_ns - event.begin_ns);
}

// Values of another rank may be anything.
bool IsValid(const TraceEvent& event) {
  return static_cast<int>(event.track) < kTraceTracks &&
         event.begin_ns <= event.end_ns && event.begin_ns >= 0;
}

}  // namespace

Result<TraceWriter> TraceWriter::Create(const std::string& path, const Run& run,
                                        std::span<const Source> sources) {
  RINGPIPE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  TraceWriter writer(std::move(file));
  writer.begun_.resize(run.size);
  writer.AddHeader(run, sources);
  for (const Source& source : sources) {
    writer.AddProcess(source);
  }
  RINGPIPE_RETURN_IF_ERROR(writer.Flush(0));
  return writer;
}

void TraceWriter::AddHeader(const Run& run, std::span<const Source> sources) {
  char id[17];
  std::snprintf(id, sizeof id, "%016" PRIx64, run.id);
  text_ +=
      "{\"displayTimeUnit\":\"ns\",\n\"otherData\":{\"program\":\"ringpipe\"" +
      Text("run", id) + Number("size", run.size) +
      ",\"aligned\":" + (run.aligned ? "true" : "false") + ",\"ranks\":[";
  bool first = true;
  for (const Source& source : sources) {
    text_ += std::string(first ? "\n" : ",\n") +
             "{\"rank\":" + std::to_string(source.rank) +
             Text("host", source.host) + Number("pid", source.pid) +
             Number("dropped", source.dropped) +
             ",\"clock_ahead_us\":" + Microseconds(source.clock_ahead_ns) +
             ",\"clock_error_us\":" + Microseconds(source.clock_error_ns) + "}";
    first = false;
  }
  text_ += "]},\n\"traceEvents\":[";
}

void TraceWriter::BeginEvent(const Source& source, const char* phase,
                             TraceTrack track) {
  text_ += std::string(first_event_ ? "\n" : ",\n") + "{\"ph\":\"" + phase +
           "\",\"pid\":" + std::to_string(source.rank) +
           ",\"tid\":" + std::to_string(static_cast<int>(track));
  first_event_ = false;
}

// The names, and the order, of the process and its threads.
void TraceWriter::AddProcess(const Source& source) {
  const auto metadata = [&](const char* what, TraceTrack track,
                            const std::string& arguments) {
    BeginEvent(source, "M", track);
    text_ += Text("name", what) + ",\"args\":{" + arguments + "}}";
  };
  const std::string name = "rank " + std::to_string(source.rank) + " on host " +
                           source.host + " (pid " + std::to_string(source.pid) +
                           ")";
  metadata("process_name", TraceTrack::kCall,
           "\"name\":\"" + Escaped(name) + "\"");
  metadata("process_sort_index", TraceTrack::kCall,
           "\"sort_index\":" + std::to_string(source.rank));
  for (int i = 0; i < kTraceTracks; ++i) {
    const auto track = static_cast<TraceTrack>(i);
    if (track == TraceTrack::kAcquire || track == TraceTrack::kSend ||
        track == TraceTrack::kReceive) {
      continue;  // never "X"
    }
    metadata("thread_name", track,
             "\"name\":\"" + std::string(Name(track)) + "\"");
    metadata("thread_sort_index", track, "\"sort_index\":" + std::to_string(i));
  }
}

Status TraceWriter::Add(const Source& source,
                        std::span<const TraceEvent> events) {
  for (const TraceEvent& event : events) {
    if (!IsValid(event)) {
      continue;
    }
    if (!begun_[source.rank]) {
      begun_[source.rank] = true;
      AddDropped(source, event);
    }
    AddEvent(source, event);
    RINGPIPE_RETURN_IF_ERROR(Flush(kFlushBytes));
  }
  return Status::Ok();
}

// A mark where the events begin, if there were more before.
void TraceWriter::AddDropped(const Source& source, const TraceEvent& first) {
  if (source.dropped == 0) {
    return;
  }
  BeginEvent(source, "i", TraceTrack::kCall);
  text_ += Text("name",
                std::to_string(source.dropped) + " older events were dropped") +
           ",\"s\":\"p\",\"ts\":" +
           Microseconds(first.begin_ns - source.clock_ahead_ns) +
           ",\"args\":{\"dropped\":" + std::to_string(source.dropped) + "}}";
}

void TraceWriter::AddEvent(const Source& source, const TraceEvent& event) {
  if (event.track == TraceTrack::kSend || event.track == TraceTrack::kReceive) {
    AddMessage(source, event);
    return;
  }
  BeginEvent(source, "X", event.track);
  text_ += Times(source, event) + Text("cat", Name(event.track));
  if (event.track == TraceTrack::kCall) {
    AddCall(event);
  } else if (event.track == TraceTrack::kWait) {
    const std::string name = Name(event.waits_for);
    text_ += Text("name", "wait: " + name) +
             ",\"args\":{\"call\":" + std::to_string(event.call) +
             Text("for", name) + "}}";
  } else if (event.track == TraceTrack::kTransport) {
    text_ += Text("name", "post, poll") +
             ",\"args\":{\"call\":" + std::to_string(event.call) + "}}";
  } else {
    AddPart(event);
  }
}

void TraceWriter::AddCall(const TraceEvent& event) {
  const Digest digest = event.digest();
  const auto collective = static_cast<Collective>(digest.collective);
  const auto type = static_cast<DataType>(digest.type);
  const std::string name = CollectiveName(collective);
  text_ +=
      Text("name", name) +
      ",\"args\":{\"call\":" + std::to_string(digest.sequence) +
      Text("collective", name) + Number("count", digest.count) +
      Text("type", ringpipe::Name(type)) +
      Number("bytes", digest.count * SizeOf(type)) +
      (digest.counts == 0
           ? ""
           : Text("counts",
                  digest.counts == Digest::kOfPairs ? "by pair" : "by rank"));
  if (InfoOf(collective).reduces) {
    text_ += Text("op", ringpipe::Name(static_cast<ReduceOp>(digest.op)));
  }
  if (InfoOf(collective).is_rooted()) {
    text_ += Number("root", digest.root);
  }
  text_ += Text("algorithm", AlgorithmName(digest)) +
           Number("subchunk_elements", digest.subchunk_elements) +
           Number("depth", digest.depth) +
           ",\"ok\":" + (event.failed ? "false" : "true") + "}}";
}

// The name, and what tells one part of a call from another.
void TraceWriter::AddPart(const TraceEvent& event) {
  const bool is_message =
      event.track == TraceTrack::kSend || event.track == TraceTrack::kReceive;
  text_ +=
      Text("name", is_message ? Name(event.track)
                              : "sub-chunk " + std::to_string(event.subchunk)) +
      ",\"args\":{\"call\":" + std::to_string(event.call) +
      Number("step", event.step) + Number("subchunk", event.subchunk) +
      Number("bytes", event.bytes);
  if (event.peer != TraceEvent::kNoPeer) {
    text_ += ",\"peer\":" + std::to_string(event.peer);
  }
  if (is_message) {
    text_ += Number("message", event.message);
  }
  text_ += "}}";
}

void TraceWriter::AddMessage(const Source& source, const TraceEvent& event) {
  const char* const category = Name(event.track);
  const std::string id =
      std::to_string(source.rank) + "." + std::to_string(next_message_++);
  BeginEvent(source, "b", event.track);
  text_ += ",\"ts\":" + Microseconds(event.begin_ns - source.clock_ahead_ns) +
           Text("cat", category) + Text("id", id);
  AddPart(event);
  BeginEvent(source, "e", event.track);
  text_ += ",\"ts\":" + Microseconds(event.end_ns - source.clock_ahead_ns) +
           Text("cat", category) + Text("id", id) + Text("name", category) +
           "}";
}

Status TraceWriter::Flush(std::size_t from_bytes) {
  if (text_.size() < from_bytes) {
    return Status::Ok();
  }
  Status status = file_.Write(text_);
  text_.clear();
  return status;
}

Status TraceWriter::Finish() {
  text_ += "\n]}\n";
  RINGPIPE_RETURN_IF_ERROR(Flush(0));
  return file_.Commit();
}

}  // namespace ringpipe
