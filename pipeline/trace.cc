#include "pipeline/trace.h"

#include <algorithm>
#include <bit>

namespace ringpipe {
namespace {

// Of a call's detail, what Digest::counts becomes: that they differ by rank, or
// by pair.
constexpr std::uint64_t kHasCounts = std::uint64_t{1} << 63;
constexpr std::uint64_t kHasCountsOfPairs = std::uint64_t{1} << 62;

}  // namespace

const char* Name(TraceTrack track) {
  switch (track) {
    case TraceTrack::kCall:
      return "call";
    case TraceTrack::kAcquire:
      return "acquire";
    case TraceTrack::kCopyIn:
      return "copy in";
    case TraceTrack::kRegister:
      return "register";
    case TraceTrack::kSend:
      return "send";
    case TraceTrack::kReceive:
      return "receive";
    case TraceTrack::kReduce:
      return "reduce";
    case TraceTrack::kCopyOut:
      return "copy out";
    case TraceTrack::kTransport:
      return "transport";
    case TraceTrack::kWait:
      return "wait";
  }
  return "unknown";
}

TraceEvent TraceEvent::ForCall(const Digest& digest) {
  TraceEvent event;
  event.call = digest.sequence;
  event.bytes = digest.count;
  event.subchunk = digest.subchunk_elements;
  event.step = digest.collective;
  event.peer = static_cast<std::int32_t>(digest.root);
  event.message = digest.algorithm;
  event.detail = digest.type | std::uint64_t{digest.op} << 16 |
                 std::uint64_t{digest.depth} << 32 |
                 (digest.counts == 0                  ? 0
                  : digest.counts == Digest::kOfPairs ? kHasCountsOfPairs
                                                      : kHasCounts);
  return event;
}

Digest TraceEvent::digest() const {
  Digest digest;
  digest.sequence = call;
  digest.count = bytes;
  digest.subchunk_elements = static_cast<std::uint32_t>(subchunk);
  digest.collective = static_cast<std::uint16_t>(step);
  digest.root = static_cast<std::uint16_t>(peer);
  digest.algorithm = static_cast<std::uint16_t>(message);
  digest.type = static_cast<std::uint16_t>(detail);
  digest.op = static_cast<std::uint16_t>(detail >> 16);
  digest.depth = static_cast<std::uint16_t>(
      (detail & ~(kHasCounts | kHasCountsOfPairs)) >> 32);
  digest.counts = (detail & kHasCountsOfPairs) != 0 ? Digest::kOfPairs
                  : (detail & kHasCounts) != 0      ? Digest::kOfPairs + 1
                                                    : 0;
  return digest;
}

Trace::Trace(std::size_t capacity)
    : slots_(capacity + 1), ring_(std::make_unique<Slot[]>(slots_)) {}

// A reader that sees any word of event n sees that n events were recorded
// before it, because the stores below are in this order.
void Trace::Record(const TraceEvent& event) noexcept {
  const std::uint64_t number = recorded_.load(std::memory_order_relaxed);
  const auto words = std::bit_cast<Words>(event);
  Slot& slot = ring_[number % slots_];
  for (std::size_t i = 0; i < words.size(); ++i) {
    slot.words[i].store(words[i], std::memory_order_release);
  }
  recorded_.store(number + 1, std::memory_order_release);
}

Trace::Contents Trace::Read() const {
  const std::uint64_t end = recorded_.load(std::memory_order_acquire);
  const std::uint64_t kept = slots_ - 1;
  const std::uint64_t begin = end - std::min(end, kept);
  Contents contents;
  contents.events.reserve(end - begin);
  for (std::uint64_t number = begin; number < end; ++number) {
    Words words;
    for (std::size_t i = 0; i < words.size(); ++i) {
      words[i] =
          ring_[number % slots_].words[i].load(std::memory_order_acquire);
    }
    contents.events.push_back(std::bit_cast<TraceEvent>(words));
  }
  // What was replaced meanwhile is no event, or a later one.
  const std::uint64_t now = recorded_.load(std::memory_order_acquire);
  const std::uint64_t whole = now - std::min(now, kept);
  const std::uint64_t replaced =
      std::min(std::max(whole, begin) - begin, end - begin);
  contents.events.erase(
      contents.events.begin(),
      contents.events.begin() + static_cast<std::ptrdiff_t>(replaced));
  contents.dropped = begin + replaced;
  return contents;
}

}  // namespace ringpipe
