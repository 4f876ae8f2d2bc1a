#include "pipeline/host/call_lines.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "reduction/host_copy.h"

namespace ringpipe {

void CallLines::GoTo(std::uint64_t sequence) {
  if (call_ != sequence + 1) {
    call_ = sequence + 1;
    published_ = has_payload_ = false;
    readers_.clear();
  }
}

void CallLines::AddReader(int peer) {
  GoTo(check_.running().sequence);
  readers_.push_back(peer);
}

// Whoever was a reader of the call before, and is none of this one, may wait
// until this rank is done with what it said there.
void CallLines::Begin(std::uint64_t sequence) {
  GoTo(sequence);
  own_.begun.store(call_, kPublishes);
  const Place& before = places_[(call_ + 1) % 2];
  if (before.call + 1 == call_ && before.readers != readers_) {
    Written(before.readers);
  }
}

bool CallLines::HasBegun(int peer, std::uint64_t call) {
  seen_[peer] = std::max(seen_[peer], waker_.peer(peer).header().begun.load(
                                          std::memory_order_acquire));
  return seen_[peer] >= call;
}

bool CallLines::CanPublish() {
  const Place& place = places_[call_ % 2];
  return published_ || std::all_of(place.readers.begin(), place.readers.end(),
                                   [&](int reader) {
                                     return seen_[reader] > place.call ||
                                            HasBegun(reader, place.call + 1);
                                   });
}

void CallLines::Publish(const Memory* payload) {
  CallLine& line = own_.calls[call_ % 2];
  std::uint32_t word = 0;
  if (payload != nullptr && !has_payload_) {
    has_payload_ = true;
    word = payload->bytes + 1;
    HostCopy(payload->bytes <= kHostShortBytes ? line.short_payload.data()
                                               : line.long_payload.data(),
             payload->data, payload->bytes);
    if (published_) {
      line.payload.store(word, kPublishes);
      Written(readers_);
    }
  }
  if (std::exchange(published_, true)) {
    return;
  }
  Place& place = places_[call_ % 2];
  place.call = call_;
  place.readers = readers_;
  // Not seen by who has to read the line, but by a rank that makes other calls.
  line.call.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  line.check.store(check_.word(), std::memory_order_relaxed);
  line.digest.Write(check_.running());
  line.payload.store(word, std::memory_order_relaxed);
  line.call.store(call_, kPublishes);
  Written(readers_);
}

void CallLines::Written(const std::vector<int>& readers) {
  for (const int reader : readers) {
    waker_.Written(reader);
  }
}

}  // namespace ringpipe
