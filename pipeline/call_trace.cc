#include "pipeline/call_trace.h"

#include <algorithm>
#include <chrono>

namespace ringpipe {
namespace {

std::int64_t Nanoseconds(Clock::time_point when) {
  return std::chrono::nanoseconds(when.time_since_epoch()).count();
}

}  // namespace

TraceEvent CallTrace::Event(TraceTrack track, Clock::time_point begin,
                            Clock::time_point end) const {
  TraceEvent event;
  event.track = track;
  event.begin_ns = Nanoseconds(begin);
  event.end_ns = Nanoseconds(end);
  event.call = digest_.sequence;
  return event;
}

void CallTrace::Begin(const Digest& digest) {
  digest_ = digest;
  begin_ = Clock::now();
  std::fill(sent_.begin(), sent_.end(), 0);
  std::fill(expected_.begin(), expected_.end(), 0);
}

void CallTrace::MakeRoom(std::size_t messages) {
  if (messages_.size() < messages) {
    messages_.resize(messages);
  }
}

void CallTrace::End(bool ok) {
  TraceEvent event = TraceEvent::ForCall(digest_);
  event.begin_ns = Nanoseconds(begin_);
  event.end_ns = Nanoseconds(Clock::now());
  event.failed = !ok;
  trace_.Record(event);
}

void CallTrace::Work(TraceTrack track, const Part& part,
                     Clock::time_point begin, Clock::time_point end) {
  Clock::time_point& last = ends_[static_cast<std::size_t>(track)];
  TraceEvent event = Event(track, std::max(begin, last), end);
  last = end;
  event.step = part.step;
  event.subchunk = part.subchunk;
  event.peer = part.peer;
  event.bytes = part.bytes;
  trace_.Record(event);
}

void CallTrace::InTransport(Clock::time_point begin, Clock::time_point end) {
  trace_.Record(Event(TraceTrack::kTransport, begin, end));
}

void CallTrace::Waited(TraceTrack waits_for, Clock::time_point begin,
                       Clock::time_point end) {
  // A call's first wait may begin at a coarse clock's time, before the call.
  TraceEvent event = Event(TraceTrack::kWait, std::max(begin, begin_), end);
  event.waits_for = waits_for;
  trace_.Record(event);
}

void CallTrace::MessageBegins(TraceTrack track, std::size_t index, int peer) {
  std::vector<std::uint32_t>& numbers =
      track == TraceTrack::kSend ? sent_ : expected_;
  messages_[index] = {Clock::now(), numbers[peer]++};
}

void CallTrace::MessageEnds(TraceTrack track, std::size_t index,
                            const Part& part) {
  const Message& message = messages_[index];
  TraceEvent event = Event(track, message.begin, Clock::now());
  event.step = part.step;
  event.subchunk = part.subchunk;
  event.peer = part.peer;
  event.bytes = part.bytes;
  event.message = message.number;
  trace_.Record(event);
}

}  // namespace ringpipe
