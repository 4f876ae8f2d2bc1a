#include "pipeline/host/host_connection.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "pipeline/host/streaming_copy.h"

namespace ringpipe {
namespace {

// From here on a message that is written into the peer's memory goes past the
// caches: it would push more out of them than it finds again.
constexpr std::uint32_t kStreamingBytes = 32 * 1024;

std::size_t At(std::uint64_t number) { return number % kWindow; }

}  // namespace

// --- First messages ----------------------------------------------------------

std::uint64_t CallLines::CheckOf(const Digest& digest) {
  std::array<std::uint64_t, sizeof digest / sizeof(std::uint64_t)> words;
  static_assert(sizeof words == sizeof digest);
  std::memcpy(words.data(), &digest, sizeof digest);
  std::uint64_t check = 0;
  for (const std::uint64_t word : words) {
    check = std::rotl(check ^ word, 29) * 0x9e3779b97f4a7c15;  // 2^64 / phi
  }
  return check;
}

void CallLines::Begin(const Digest& digest) {
  if (call_ == digest.sequence + 1) {
    return;  // another connection has begun it
  }
  digest_ = digest;
  call_ = digest.sequence + 1;
  check_ = CheckOf(digest);
  published_ = has_payload_ = false;
  readers_.clear();
}

bool CallLines::HasBegun(int peer, std::uint64_t call) {
  for (const CallLine& line : peers_[peer]->calls) {
    seen_[peer] =
        std::max(seen_[peer], line.call.load(std::memory_order_acquire));
  }
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
    if (payload->bytes > 0) {
      std::memcpy(payload->bytes <= CallLine::kShort ? line.short_payload.data()
                                                     : line.long_payload.data(),
                  payload->data, payload->bytes);
    }
    if (published_) {
      line.payload.store(word, std::memory_order_release);
    }
  }
  if (std::exchange(published_, true)) {
    return;
  }
  Place& place = places_[call_ % 2];
  place.call = call_;
  place.readers = readers_;
  line.check = check_;
  line.digest = digest_;
  line.payload.store(word, std::memory_order_relaxed);
  line.call.store(call_, std::memory_order_release);
}

// --- One call ----------------------------------------------------------------

HostConnection::HostConnection(int rank, int peer, std::shared_ptr<Region> own,
                               CallLines& lines, const CallCheck& check)
    : Connection(peer),
      rank_(rank),
      lines_(lines),
      check_(check),
      own_(std::move(own)),
      in_(&RegionHeader::Of(*own_).inbox(peer)) {}

void HostConnection::Attach(std::shared_ptr<Region> peers,
                            FileDescriptor wake) {
  peers_ = std::move(peers);
  wake_ = std::move(wake);
  peers_header_ = &RegionHeader::Of(*peers_);
  out_ = &peers_header_->inbox(rank_);
}

void HostConnection::Begin(const Call& call) {
  lines_.Begin(*call.digest);
  lines_.AddReader(peer());
  agreed_ = said_ = stalled_ = false;
  sends_eagerly_ = call.eager && call.sends;
  expects_eager_ = call.eager && call.receives;
}

bool HostConnection::CanExpect() const {
  return expects_eager_ || expected_[At(expects_ + 1)].number == 0;
}

void HostConnection::Expect(Instance instance, const Memory& target) {
  if (std::exchange(expects_eager_, false)) {
    eager_ = {instance, target, kEager};
    eager_arrived_ = false;
    return;
  }
  const std::uint64_t number = ++expects_;
  expected_[At(number)] = {instance, target, number};
  Inbox::Target& place = out_->targets[At(number)];
  place.offset =
      target.data == nullptr
          ? Inbox::kNowhere
          : own_->OffsetOf(target.data, target.bytes).value_or(Inbox::kNowhere);
  place.bytes = target.bytes;
  place.number.store(number, std::memory_order_release);
  unnotified_ = true;
}

const Inbox::Target* HostConnection::PeersTarget() const {
  const std::uint64_t number = sent_ + 1;
  const Inbox::Target& target = in_->targets[At(number)];
  return target.number.load(std::memory_order_acquire) == number ? &target
                                                                 : nullptr;
}

bool HostConnection::HasRoom() const {
  const std::uint64_t taken =
      std::min(in_->taken.load(std::memory_order_acquire), sent_);
  return sent_ + 1 - taken <= kWindow && sends_[At(sent_ + 1)].number == 0;
}

// Before the peer has begun the call, messages are left where they lie: it can
// begin with them at once, and has said nothing yet of where it wants them.
Result<bool> HostConnection::CanSend() {
  const bool can = sends_eagerly_ ? lines_.CanPublish()
                                  : HasRoom() && (!agreed_ || PeersTarget());
  stalled_ = !can;
  return can;
}

Result<bool> HostConnection::Send(Instance instance, const Memory& source) {
  if (std::exchange(sends_eagerly_, false)) {
    lines_.Publish(&source);
    said_ = true;
    NotifyPeer();
    return true;
  }
  const Inbox::Target* const target = PeersTarget();
  if (target != nullptr && target->offset != Inbox::kNowhere) {
    return Write(*target, source);
  }
  const auto offset = source.bytes == 0
                          ? std::optional<std::uint64_t>(0)
                          : own_->OffsetOf(source.data, source.bytes);
  if (!offset.has_value()) {
    return Status(StatusCode::kInternal,
                  "a message to rank " + std::to_string(peer()) +
                      " lies in memory that the ranks do not share");
  }
  sends_[At(sent_ + 1)] = {instance, sent_ + 1};
  ++sending_;
  Say(*offset, source.bytes, /*in_target=*/false);
  return false;
}

// Announced, so that the peer knows when nobody writes any more, and not begun
// once it has said that nobody may.
Result<bool> HostConnection::Write(const Inbox::Target& target,
                                   const Memory& source) {
  std::byte* const to = peers_->At(target.offset, source.bytes);
  if (to == nullptr || source.bytes > target.bytes) {
    return Status(StatusCode::kInternal,
                  "rank " + std::to_string(peer()) +
                      " wants a message where it has no room for it");
  }
  out_->writing.store(1, std::memory_order_seq_cst);
  if (peers_header_->revoked.load(std::memory_order_seq_cst) != 0) {
    out_->writing.store(0, std::memory_order_release);
    return Status(StatusCode::kPeerLost, "rank " + std::to_string(peer()) +
                                             " has ended the communicator");
  }
  if (source.bytes >= kStreamingBytes) {
    StreamingCopy(to, source.data, source.bytes);
  } else if (source.bytes > 0) {
    std::memcpy(to, source.data, source.bytes);
  }
  out_->writing.store(0, std::memory_order_release);
  Say(0, source.bytes, /*in_target=*/true);
  return true;
}

void HostConnection::Say(std::uint64_t offset, std::uint32_t bytes,
                         bool in_target) {
  const std::uint64_t number = ++sent_;
  Inbox::Message& message = out_->messages[At(number)];
  message.offset = offset;
  message.bytes = bytes;
  message.in_target = in_target ? 1 : 0;
  message.number.store(number, std::memory_order_release);
  NotifyPeer();
}

Status HostConnection::Release(Instance instance) {
  if (eager_.number != 0 && eager_.instance == instance) {
    eager_.number = 0;  // the line stays as it is until the next call
    return Status::Ok();
  }
  for (std::uint64_t number = oldest_expected_ + 1; number <= taken_;
       ++number) {
    const Expected& expected = expected_[At(number)];
    if (expected.number == number && expected.instance == instance) {
      Released(number);
      return Status::Ok();
    }
  }
  return {StatusCode::kInternal, "a message was released twice"};
}

void HostConnection::Released(std::uint64_t number) {
  Close(number);
  out_->released[At(number)].store(number, std::memory_order_release);
  NotifyPeer();
}

void HostConnection::Close(std::uint64_t number) {
  expected_[At(number)].number = 0;
  while (oldest_expected_ < taken_ &&
         expected_[At(oldest_expected_ + 1)].number != oldest_expected_ + 1) {
    ++oldest_expected_;
  }
}

Result<bool> HostConnection::Push(Events& /*events*/) {
  bool happened = false;
  if (!said_ && !sends_eagerly_ && lines_.CanPublish()) {
    RINGPIPE_RETURN_IF_ERROR(Announce());
    happened = true;
  }
  if (unnotified_) {
    NotifyPeer();
    happened = true;
  }
  return happened;
}

Status HostConnection::Announce() {
  if (lines_.CanPublish()) {
    lines_.Publish(nullptr);
    said_ = true;
    NotifyPeer();
  }
  return Status::Ok();
}

// The fence: either this end sees that the peer sleeps, or the peer, which
// looks once more before it does, sees what was written.
void HostConnection::NotifyPeer() {
  unnotified_ = false;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (peers_header_->asleep.load(std::memory_order_relaxed) != 0) {
    Wake();
  }
}

void HostConnection::Wake() {
  if (peers_header_->asleep.exchange(0) != 0) {
    const std::uint64_t one = 1;
    static_cast<void>(!write(wake_.get(), &one, sizeof one));
  }
}

bool HostConnection::PeerWrites() const {
  return in_->writing.load(std::memory_order_seq_cst) != 0;
}

// --- What the peer has done --------------------------------------------------

Result<bool> HostConnection::Poll(Events& events) {
  bool happened = false;
  if (!agreed_) {
    RINGPIPE_ASSIGN_OR_RETURN(happened, PollCall());
  }
  if (agreed_) {
    RINGPIPE_ASSIGN_OR_RETURN(const bool eager, PollEager(events));
    RINGPIPE_ASSIGN_OR_RETURN(const bool taken, PollMessages(events));
    happened |= eager || taken;
  }
  if (sending_ > 0) {
    RINGPIPE_ASSIGN_OR_RETURN(const bool released, PollReleased(events));
    happened |= released;
  }
  // What stood still may go on.
  if (stalled_) {
    RINGPIPE_ASSIGN_OR_RETURN(const bool can, CanSend());
    happened |= can;
  } else if (!said_ && !sends_eagerly_) {
    happened |= lines_.CanPublish();
  }
  return happened;
}

Result<bool> HostConnection::PollCall() {
  const CallLine& line = peers_header_->calls[lines_.call() % 2];
  if (line.call.load(std::memory_order_acquire) != lines_.call()) {
    return false;
  }
  if (line.check != lines_.check()) {
    const Digest theirs = line.digest;
    RINGPIPE_RETURN_IF_ERROR(check_.Compare(peer(), theirs).status());
    return Status(StatusCode::kInternal,
                  "rank " + std::to_string(peer()) +
                      " says in an unknown way which call it makes: do all "
                      "ranks run the same version of ringpipe?");
  }
  lines_.Saw(peer());
  agreed_ = true;
  return true;
}

Result<bool> HostConnection::PollEager(Events& events) {
  if (eager_.number == 0 || eager_arrived_) {
    return false;
  }
  const CallLine& line = peers_header_->calls[lines_.call() % 2];
  const std::uint32_t word = line.payload.load(std::memory_order_acquire);
  if (word == 0) {
    return false;
  }
  const std::uint32_t bytes = word - 1;
  if (bytes > kHostEagerBytes) {
    return WrongLength(bytes, kHostEagerBytes);
  }
  const std::byte* data = bytes <= CallLine::kShort ? line.short_payload.data()
                                                    : line.long_payload.data();
  eager_arrived_ = true;
  if (eager_.target.data != nullptr) {
    if (bytes > eager_.target.bytes) {
      return WrongLength(bytes, eager_.target.bytes);
    }
    std::memcpy(eager_.target.data, data, bytes);
    data = eager_.target.data;
    eager_.number = 0;
  }
  RINGPIPE_RETURN_IF_ERROR(events.Arrived(eager_.instance, data, bytes));
  return true;
}

Result<bool> HostConnection::PollMessages(Events& events) {
  const std::uint64_t before = taken_;
  while (taken_ < expects_) {
    const Inbox::Message& message = in_->messages[At(taken_ + 1)];
    if (message.number.load(std::memory_order_acquire) != taken_ + 1) {
      break;
    }
    ++taken_;
    RINGPIPE_RETURN_IF_ERROR(Take(events, taken_, message));
  }
  if (taken_ == before) {
    return false;
  }
  out_->taken.store(taken_, std::memory_order_release);
  NotifyPeer();
  return true;
}

Status HostConnection::Take(Events& events, std::uint64_t number,
                            const Inbox::Message& message) {
  const Instance instance = expected_[At(number)].instance;
  const Memory target = expected_[At(number)].target;
  const std::uint64_t offset = message.offset;
  const std::uint32_t bytes = message.bytes;
  if (target.data != nullptr && bytes > target.bytes) {
    return WrongLength(bytes, target.bytes);
  }
  if (message.in_target != 0 && target.data != nullptr) {
    Close(number);
    return events.Arrived(instance, target.data, bytes);
  }
  const std::byte* const data = peers_->At(offset, bytes);
  if (data == nullptr) {
    return {StatusCode::kInternal,
            "rank " + std::to_string(peer()) +
                " sent a message that lies outside of its memory"};
  }
  if (target.data == nullptr) {
    return events.Arrived(instance, data, bytes);
  }
  if (bytes > 0) {
    std::memcpy(target.data, data, bytes);
  }
  Released(number);
  return events.Arrived(instance, target.data, bytes);
}

Result<bool> HostConnection::PollReleased(Events& events) {
  bool happened = false;
  for (std::uint64_t number = oldest_sending_ + 1; number <= sent_; ++number) {
    Sending& sending = sends_[At(number)];
    if (sending.number == number &&
        in_->released[At(number)].load(std::memory_order_acquire) == number) {
      sending.number = 0;
      --sending_;
      happened = true;
      RINGPIPE_RETURN_IF_ERROR(events.Sent(sending.instance));
    }
    if (sending.number != number && number == oldest_sending_ + 1) {
      ++oldest_sending_;
    }
  }
  return happened;
}

Status HostConnection::WrongLength(std::uint64_t sent,
                                   std::uint64_t expected) const {
  return {StatusCode::kInternal,
          "rank " + std::to_string(peer()) + " sent " + std::to_string(sent) +
              " bytes where the schedule has " + std::to_string(expected)};
}

}  // namespace ringpipe
