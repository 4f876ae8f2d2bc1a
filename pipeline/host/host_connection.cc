#include "pipeline/host/host_connection.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "pipeline/host/cache_lines.h"
#include "reduction/streaming_copy.h"

namespace ringpipe {
namespace {

// From here on a message that is written into the peer's memory goes past the
// caches: it would push more out of them than it finds again.
constexpr std::uint32_t kStreamingBytes = 32 * 1024;

// Of a message that stays where it is; a larger one is no sub-chunk.
constexpr std::uint32_t kMostMessageBytes = 64 << 20;

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

void CallLines::GoTo(std::uint64_t sequence) {
  if (call_ != sequence + 1) {
    call_ = sequence + 1;
    published_ = has_payload_ = false;
    readers_.clear();
  }
}

void CallLines::AddReader(int peer, const Digest& digest) {
  GoTo(digest.sequence);
  if (readers_.empty()) {
    digest_ = digest;
    check_ = CheckOf(digest);
  }
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
    if (payload->bytes > 0) {
      std::memcpy(payload->bytes <= CallLine::kShort ? line.short_payload.data()
                                                     : line.long_payload.data(),
                  payload->data, payload->bytes);
    }
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
  line.check.store(check_, std::memory_order_relaxed);
  line.digest = digest_;
  line.payload.store(word, std::memory_order_relaxed);
  line.call.store(call_, kPublishes);
  Written(readers_);
}

void CallLines::Written(const std::vector<int>& readers) {
  for (const int reader : readers) {
    waker_.Written(reader);
  }
}

// --- One call ----------------------------------------------------------------

HostConnection::HostConnection(int rank, int peer, std::shared_ptr<Region> own,
                               CallLines& lines, const CallCheck& check,
                               bool claims)
    : Connection(peer),
      rank_(rank),
      claims_(claims),
      lines_(lines),
      check_(check),
      own_(std::move(own)),
      in_(&RegionHeader::Of(*own_).inbox(peer)) {}

void HostConnection::Attach(RegionPeer peer, std::string_view name) {
  ends_ = std::move(peer);
  peers_process_ = ProcessMemory(ends_.pid, ends_.pidfd.get());
  RegionHeader& header = RegionHeader::Of(*ends_.region);
  peers_end_ = Sleeper(header, ends_.wake.get());
  lines_.waker().Attach(this->peer(), peers_end_);
  out_ = &header.inbox(rank_);
  peers_name_ = name;
  // Only a process that is told from others, and is the right one.
  reaches_peer_ = ends_.grant_at != 0 &&
                  (ends_.pidfd || ends_.pid == getpid()) && ReadGrant() == 0 &&
                  IsPeersGrant();
  out_->reaches_private.store(reaches_peer_ ? 1 : 0, std::memory_order_relaxed);
}

// What the peer says of itself counts only against it.
bool HostConnection::reaches_private() const {
  return reaches_peer_ &&
         in_->reaches_private.load(std::memory_order_relaxed) != 0;
}

void HostConnection::Begin(const Call& call) {
  lines_.AddReader(peer(), *call.digest);
  agreed_ = said_ = stalled_ = false;
  sends_eagerly_ = call.eager && call.sends;
  expects_eager_ = call.eager && call.receives;
  eager_.number = 0;
}

bool HostConnection::CanExpect() const {
  return expects_eager_ || expected_[At(expects_ + 1)].number == 0;
}

void HostConnection::Expect(Instance instance, const Memory& target) {
  if (std::exchange(expects_eager_, false)) {
    eager_.instance = instance;
    eager_.target = target;
    eager_.number = kEager;
    eager_arrived_ = false;
    return;
  }
  const std::uint64_t number = ++expects_;
  Expected& expected = expected_[At(number)];
  expected.instance = instance;
  expected.target = target;
  expected.number = number;
  Inbox::Target& place = out_->targets[At(number)];
  const auto [space, address] = AddressOf(target);
  place.space.store(space == Space::kSlot ? Space::kRegion : space,
                    std::memory_order_relaxed);
  place.address.store(address, std::memory_order_relaxed);
  place.bytes.store(target.bytes, std::memory_order_relaxed);
  place.number.store(number, kPublishes);
  lines_.waker().Written(peer());
}

// Memory of this rank's, as the peer reaches it.
std::pair<Space, std::uint64_t> HostConnection::AddressOf(
    const Memory& memory) const {
  if (memory.data == nullptr) {
    return {Space::kNone, 0};
  }
  const auto offset = own_->OffsetOf(memory.data, memory.bytes);
  return offset.has_value()
             ? std::pair(memory.slot ? Space::kSlot : Space::kRegion, *offset)
             : std::pair(Space::kProcess,
                         reinterpret_cast<std::uint64_t>(memory.data));
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
    return true;
  }
  // Before both have said the same, a target may be of another call.
  const Inbox::Target* const target = agreed_ ? PeersTarget() : nullptr;
  const Space wanted_in = target == nullptr
                              ? Space::kNone
                              : target->space.load(std::memory_order_relaxed);
  if (wanted_in == Space::kRegion ||
      (wanted_in == Space::kProcess && reaches_private())) {
    return Write(wanted_in, *target, source);
  }
  const auto [space, address] = AddressOf(source);
  if (space == Space::kProcess && source.bytes > 0 && !reaches_private()) {
    return Status(StatusCode::kInternal,
                  "a message to rank " + std::to_string(peer()) +
                      " lies in memory that the ranks do not share");
  }
  if (sending_ == 0) {
    oldest_sending_ = sent_;
  }
  sends_[At(sent_ + 1)] = {instance, sent_ + 1};
  ++sending_;
  Say(space, address, source.bytes);
  return false;
}

// Announced, so that the peer knows when nobody writes any more, and not begun
// once it has said that nobody may.
Result<bool> HostConnection::Write(Space space, const Inbox::Target& target,
                                   const Memory& source) {
  const std::uint64_t address = target.address.load(std::memory_order_relaxed);
  std::byte* const shared = space == Space::kRegion
                                ? ends_.region->At(address, source.bytes)
                                : nullptr;
  if (source.bytes > target.bytes.load(std::memory_order_relaxed) ||
      (space == Space::kRegion && shared == nullptr)) {
    return Status(StatusCode::kInternal,
                  "rank " + std::to_string(peer()) +
                      " wants a message where it has no room for it");
  }
  out_->writing.store(1, std::memory_order_seq_cst);
  Status written;
  if (peers_end_.header().revoked.load(std::memory_order_seq_cst) != 0) {
    written = HasEnded();
  } else if (source.bytes == 0) {
    // Nothing to write.
  } else if (space == Space::kProcess) {
    written = WriteToProcess(address, source);
  } else if (source.bytes >= kStreamingBytes) {
    StreamingCopy(shared, source.data, source.bytes);
  } else {
    std::memcpy(shared, source.data, source.bytes);
  }
  out_->writing.store(0, kPublishes);
  RINGPIPE_RETURN_IF_ERROR(written);
  Say(Space::kTarget, 0, source.bytes);
  return true;
}

Status HostConnection::WriteToProcess(std::uint64_t address,
                                      const Memory& source) {
  int error = ReadGrant();
  if (error == 0) {
    RINGPIPE_RETURN_IF_ERROR(CheckGrant(address, source.bytes));
    error = peers_process_.Write(address, source.data, source.bytes);
  }
  return error == 0 ? Status::Ok() : CannotReach(error);
}

void HostConnection::Say(Space space, std::uint64_t address,
                         std::uint32_t bytes) {
  const std::uint64_t number = ++sent_;
  Inbox::Message& message = out_->messages[At(number)];
  message.space.store(space, std::memory_order_relaxed);
  message.address.store(address, std::memory_order_relaxed);
  message.bytes.store(bytes, std::memory_order_relaxed);
  message.number.store(number, kPublishes);
  lines_.waker().Written(peer());
}

Status HostConnection::Release(Instance instance) {
  if (eager_.number != 0 && eager_.instance == instance) {
    eager_.number = 0;  // the line stays as it is until the next call
    return Status::Ok();
  }
  for (std::uint64_t number = oldest_expected_ + 1; number <= taken_;
       ++number) {
    Expected& expected = expected_[At(number)];
    if (expected.number != number || expected.instance != instance) {
      continue;
    }
    if (!expected.copy.empty()) {  // the peer's was given back at once
      spare_copies_.push_back(std::move(expected.copy));
      expected.copy.clear();
      Close(number);
      return Status::Ok();
    }
    RINGPIPE_RETURN_IF_ERROR(CheckWhatWasRead());
    if (!expected.slot.empty()) {
      ClaimLines(expected.slot.data(), expected.slot.size());
    }
    Released(number);
    return Status::Ok();
  }
  return {StatusCode::kInternal, "a message was released twice"};
}

// What was read from the peer's memory is what it sent, unless the peer has
// failed meanwhile and given that memory back to its user.
Status HostConnection::CheckWhatWasRead() const {
  std::atomic_thread_fence(std::memory_order_acquire);
  return peers_end_.header().revoked.load(std::memory_order_relaxed) == 0
             ? Status::Ok()
             : HasEnded();
}

// Why, if it says so.
Status HostConnection::HasEnded() const {
  Status reason = PeersFailure();
  return !reason.ok()
             ? reason
             : Status(StatusCode::kPeerLost, "rank " + std::to_string(peer()) +
                                                 " has ended the communicator");
}

// Private memory which was reached before; `error` is of the kernel's copy.
Status HostConnection::CannotReach(int error) const {
  RINGPIPE_RETURN_IF_ERROR(CheckWhatWasRead());
  const std::string what = "the memory of rank " + std::to_string(peer()) +
                           " (pid " + std::to_string(ends_.pid) +
                           ") cannot be read or written any more: ";
  if (error == EFAULT) {
    return {StatusCode::kPeerLost,
            what + "its user has unmapped a buffer that a call uses"};
  }
  if (error == ESRCH) {
    return {StatusCode::kPeerLost, what + "it has died"};
  }
  return ErrnoStatus(StatusCode::kPermissionDenied,
                     what +
                         "the kernel refuses; RINGPIPE_REGISTRATION=never does "
                         "without it",
                     error);
}

void HostConnection::GiveBack(std::uint64_t number) {
  out_->released[At(number)].store(number, kPublishes);
  lines_.waker().Written(peer());
}

void HostConnection::Released(std::uint64_t number) {
  Close(number);
  GiveBack(number);
}

void HostConnection::Close(std::uint64_t number) {
  expected_[At(number)].number = 0;
  while (oldest_expected_ < taken_ &&
         expected_[At(oldest_expected_ + 1)].number != oldest_expected_ + 1) {
    ++oldest_expected_;
  }
}

// An eager message may be there already.
Result<bool> HostConnection::Push(Events& events) {
  const bool told = TellsCallAlone() && TellCall();
  RINGPIPE_ASSIGN_OR_RETURN(const bool arrived,
                            agreed_ ? PollEager(events) : false);
  return told || arrived;
}

Status HostConnection::Announce() {
  TellCall();
  return Status::Ok();
}

// Without an eager message, which may follow. Returns whether it could.
bool HostConnection::TellCall() {
  if (!lines_.CanPublish()) {
    return false;
  }
  lines_.Publish(nullptr);
  said_ = true;
  return true;
}

// One that has died does not, whatever it said last.
bool HostConnection::PeerWrites() const {
  return in_->writing.load(std::memory_order_seq_cst) != 0 &&
         !peers_process_.is_dead();
}

// A peer's text is of its choice.
Status HostConnection::PeersFailure() const {
  const Failure& failure = peers_end_.header().failure;
  if (failure.state.load(std::memory_order_acquire) != Failure::kThere) {
    return Status::Ok();
  }
  const std::uint32_t code = failure.code.load(std::memory_order_relaxed);
  const std::size_t bytes = std::min<std::size_t>(
      failure.bytes.load(std::memory_order_relaxed), failure.text.size());
  std::string text(failure.text.data(), bytes);
  std::replace_if(
      text.begin(), text.end(),
      [](unsigned char c) { return c < ' ' || c > '~'; }, '?');
  const bool known =
      code > 0 && code <= static_cast<std::uint32_t>(StatusCode::kInternal);
  return {known ? static_cast<StatusCode>(code) : StatusCode::kAborted, text};
}

Status HostConnection::TakeBack() {
  if (ends_.pid == getpid()) {
    return {StatusCode::kMemoryHeld, "a thread of this process writes to it"};
  }
  for (const Expected& expected : expected_) {
    const Memory& target = expected.target;
    if (expected.number == 0 || target.bytes == 0 || target.data == nullptr) {
      continue;
    }
    if (AddressOf(target).first == Space::kProcess) {
      return {StatusCode::kMemoryHeld, "private memory cannot be taken back"};
    }
    RINGPIPE_RETURN_IF_ERROR(own_->TakeBack(target.data, target.bytes));
  }
  return Status::Ok();
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
  }
  return happened || (TellsCallAlone() && lines_.CanPublish());
}

Result<bool> HostConnection::PollCall() {
  const CallLine& line = peers_end_.header().calls[lines_.call() % 2];
  const std::uint64_t call = line.call.load(std::memory_order_acquire);
  if (call < lines_.call()) {
    return false;
  }
  if (call > lines_.call()) {  // it did not wait for this rank to read
    return Status(
        StatusCode::kMismatch,
        "rank " + std::to_string(peer()) + " is at collective call number " +
            std::to_string(call - 1) + ", without rank " +
            std::to_string(rank_) + " at number " +
            std::to_string(lines_.call() - 1) +
            ": all ranks must make the same calls in the same order, with the "
            "same RINGPIPE_ variables");
  }
  if (line.check.load(std::memory_order_relaxed) != lines_.check()) {
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
  const CallLine& line = peers_end_.header().calls[lines_.call() % 2];
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
  out_->taken.store(taken_, kPublishes);
  lines_.waker().Written(peer());
  return true;
}

Status HostConnection::Take(Events& events, std::uint64_t number,
                            const Inbox::Message& message) {
  const Expected& expected = expected_[At(number)];
  const Memory& target = expected.target;
  const std::uint64_t address = message.address.load(std::memory_order_relaxed);
  const std::uint32_t bytes = message.bytes.load(std::memory_order_relaxed);
  const Space space = message.space.load(std::memory_order_relaxed);
  const std::uint32_t most =
      target.data != nullptr ? target.bytes : kMostMessageBytes;
  if (bytes > most) {
    return WrongLength(bytes, most);
  }
  if (space == Space::kTarget && target.data != nullptr) {
    Close(number);
    return events.Arrived(expected.instance, target.data, bytes);
  }
  if (space == Space::kProcess && bytes > 0) {
    return TakeFromProcess(events, number, address, bytes);
  }
  return TakeFromRegion(events, number, space, address, bytes);
}

Status HostConnection::TakeFromRegion(Events& events, std::uint64_t number,
                                      Space space, std::uint64_t offset,
                                      std::uint32_t bytes) {
  Expected& expected = expected_[At(number)];
  const Memory& target = expected.target;
  std::byte* const data = ends_.region->At(bytes == 0 ? 0 : offset, bytes);
  if (data == nullptr) {
    return {StatusCode::kInternal,
            "rank " + std::to_string(peer()) +
                " sent a message that lies outside of its memory"};
  }
  if (target.data == nullptr) {
    expected.slot = claims_ && space == Space::kSlot
                        ? std::span<std::byte>(data, bytes)
                        : std::span<std::byte>();
    return events.Arrived(expected.instance, data, bytes);
  }
  if (bytes > 0) {
    std::memcpy(target.data, data, bytes);
  }
  RINGPIPE_RETURN_IF_ERROR(CheckWhatWasRead());
  Released(number);
  return events.Arrived(expected.instance, target.data, bytes);
}

ProcessMemory::Piece HostConnection::GrantPiece() {
  return {&grant_, ends_.grant_at, sizeof grant_};
}

int HostConnection::ReadGrant() { return peers_process_.Read({GrantPiece()}); }

bool HostConnection::IsPeersGrant() const {
  return std::string_view(grant_.name.data(), grant_.name.size()) ==
         peers_name_;
}

// Whether the peer's user gave that memory to the running call: its own word,
// which no other rank can have written, as it was read a moment ago.
Status HostConnection::CheckGrant(std::uint64_t address,
                                  std::uint64_t bytes) const {
  if (reaches_peer_ && IsPeersGrant() && grant_.call == lines_.call() &&
      grant_.Covers(address, bytes)) {
    return Status::Ok();
  }
  RINGPIPE_RETURN_IF_ERROR(CheckWhatWasRead());
  return {StatusCode::kInternal, "private memory of rank " +
                                     std::to_string(peer()) +
                                     " was named that is none of its buffers"};
}

// Copied at once; the peer has its memory back.
Status HostConnection::TakeFromProcess(Events& events, std::uint64_t number,
                                       std::uint64_t address,
                                       std::uint32_t bytes) {
  if (reaches_peer_ && grant_.call != lines_.call()) {
    if (const int error = ReadGrant()) {
      return CannotReach(error);
    }
  }
  RINGPIPE_RETURN_IF_ERROR(CheckGrant(address, bytes));
  Expected& expected = expected_[At(number)];
  std::byte* to = expected.target.data;
  if (to == nullptr) {
    if (!spare_copies_.empty()) {
      expected.copy = std::move(spare_copies_.back());
      spare_copies_.pop_back();
    }
    if (expected.copy.size() < bytes) {
      expected.copy.resize(bytes);
    }
    to = expected.copy.data();
  }
  // And the grant once more, after it: whether the call still ran.
  if (const int error =
          peers_process_.Read({{to, address, bytes}, GrantPiece()})) {
    return CannotReach(error);
  }
  RINGPIPE_RETURN_IF_ERROR(CheckGrant(address, bytes));
  RINGPIPE_RETURN_IF_ERROR(CheckWhatWasRead());
  if (expected.target.data != nullptr) {
    Close(number);
  }
  GiveBack(number);
  return events.Arrived(expected.instance, to, bytes);
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
