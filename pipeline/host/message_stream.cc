#include "pipeline/host/message_stream.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "pipeline/host/cache_lines.h"
#include "pipeline/host/tuning.h"
#include "reduction/host_copy.h"

namespace ringpipe {
namespace {

// While it lives, the peer knows that this rank writes into its memory; also
// where an exception ends that.
class Announced {
 public:
  explicit Announced(std::atomic<std::uint32_t>& writing) : writing_(writing) {
    writing_.store(1, std::memory_order_seq_cst);
  }
  ~Announced() { writing_.store(0, kPublishes); }
  Announced(const Announced&) = delete;
  Announced& operator=(const Announced&) = delete;

 private:
  std::atomic<std::uint32_t>& writing_;
};

}  // namespace

void MessageStream::Expect(Instance instance, const Memory& target) {
  const std::uint64_t number = ++expects_;
  Expected& expected = expected_[At(number)];
  expected.instance = instance;
  expected.target = target;
  expected.number = number;
  const auto [space, address] = AddressOf(target);
  Publish(peer_.out().targets[At(number)], number,
          space == Space::kSlot ? Space::kRegion : space, address,
          target.bytes);
}

void MessageStream::Publish(Inbox::Entry& entry, std::uint64_t number,
                            Space space, std::uint64_t address,
                            std::uint32_t bytes) {
  entry.space.store(space, std::memory_order_relaxed);
  entry.address.store(address, std::memory_order_relaxed);
  entry.bytes.store(bytes, std::memory_order_relaxed);
  entry.number.store(number, kPublishes);
  peer_.Written();
}

// Memory of this rank's, as the peer reaches it; kNone: not at all.
std::pair<Space, std::uint64_t> MessageStream::AddressOf(
    const Memory& memory) const {
  const auto offset = memory.data == nullptr
                          ? std::nullopt
                          : peer_.own().OffsetOf(memory.data, memory.bytes);
  return offset.has_value()
             ? std::pair(memory.handle == kSlot ? Space::kSlot : Space::kRegion,
                         *offset)
             : std::pair(Space::kNone, std::uint64_t{0});
}

const Inbox::Entry* MessageStream::PeersTarget() const {
  const std::uint64_t number = sent_ + 1;
  const Inbox::Entry& target = peer_.in().targets[At(number)];
  return target.number.load(std::memory_order_acquire) == number ? &target
                                                                 : nullptr;
}

bool MessageStream::HasRoom() const {
  const std::uint64_t taken =
      std::min(peer_.in().taken.load(std::memory_order_acquire), sent_);
  return sent_ + 1 - taken <= kWindow && sends_[At(sent_ + 1)].number == 0;
}

bool MessageStream::CanSend(bool agreed) const {
  return HasRoom() && (!agreed || PeersTarget() != nullptr);
}

Result<bool> MessageStream::Send(Instance instance, const Memory& source,
                                 bool agreed, std::uint64_t call) {
  // Before both have said the same, a target may be of another call.
  const Inbox::Entry* const target = agreed ? PeersTarget() : nullptr;
  if (target != nullptr &&
      target->space.load(std::memory_order_relaxed) == Space::kRegion) {
    return Write(*target, source, call);
  }
  const auto [space, address] = AddressOf(source);
  if (space == Space::kNone && source.bytes > 0) {
    return Status(StatusCode::kInternal,
                  "a message to rank " + std::to_string(peer_.rank()) +
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
Result<bool> MessageStream::Write(const Inbox::Entry& target,
                                  const Memory& source, std::uint64_t call) {
  std::byte* const shared = peer_.region().At(
      target.address.load(std::memory_order_relaxed), source.bytes);
  if (source.bytes > target.bytes.load(std::memory_order_relaxed) ||
      shared == nullptr) {
    return Status(StatusCode::kInternal,
                  "rank " + std::to_string(peer_.rank()) +
                      " wants a message where it has no room for it");
  }
  Status written;
  {
    const Announced announced(peer_.out().writing);
    if (peer_.header().revoked.load(std::memory_order_seq_cst) != 0) {
      written = peer_.HasEnded(call);
    } else if (source.bytes >= kNonTemporalBytes) {
      NonTemporalCopy(shared, source.data, source.bytes);
    } else {
      HostCopy(shared, source.data, source.bytes);
    }
  }
  RINGPIPE_RETURN_IF_ERROR(written);
  Say(Space::kTarget, 0, source.bytes);
  return true;
}

void MessageStream::Say(Space space, std::uint64_t address,
                        std::uint32_t bytes) {
  const std::uint64_t number = ++sent_;
  Publish(peer_.out().messages[At(number)], number, space, address, bytes);
}

Status MessageStream::Release(Instance instance, std::uint64_t call) {
  for (std::uint64_t number = oldest_expected_ + 1; number <= taken_;
       ++number) {
    Expected& expected = expected_[At(number)];
    if (expected.number != number || expected.instance != instance) {
      continue;
    }
    RINGPIPE_RETURN_IF_ERROR(peer_.CheckWhatWasRead(call));
    static const bool claims = ClaimingPays();
    if (claims && !expected.slot.empty()) {
      ClaimLines(expected.slot.data(), expected.slot.size());
    }
    Released(number);
    return Status::Ok();
  }
  return {StatusCode::kInternal, "a message was released twice"};
}

void MessageStream::Released(std::uint64_t number) {
  Close(number);
  peer_.out().released[At(number)].store(number, kPublishes);
  peer_.Written();
}

void MessageStream::Close(std::uint64_t number) {
  expected_[At(number)].number = 0;
  while (oldest_expected_ < taken_ &&
         expected_[At(oldest_expected_ + 1)].number != oldest_expected_ + 1) {
    ++oldest_expected_;
  }
}

Status MessageStream::TakeBack() {
  for (const Expected& expected : expected_) {
    const Memory& target = expected.target;
    if (expected.number != 0 && target.bytes > 0 &&
        AddressOf(target).first != Space::kNone) {
      if (peer_.end().pid == getpid()) {
        return {StatusCode::kMemoryHeld,
                "a thread of this process writes to it"};
      }
      RINGPIPE_RETURN_IF_ERROR(peer_.own().TakeBack(target.data, target.bytes));
    }
  }
  return Status::Ok();
}

Result<bool> MessageStream::PollMessages(Connection::Events& events,
                                         std::uint64_t call) {
  const std::uint64_t before = taken_;
  while (taken_ < expects_) {
    const Inbox::Entry& message = peer_.in().messages[At(taken_ + 1)];
    if (message.number.load(std::memory_order_acquire) != taken_ + 1) {
      break;
    }
    ++taken_;
    RINGPIPE_RETURN_IF_ERROR(Take(events, taken_, message, call));
  }
  if (taken_ == before) {
    return false;
  }
  peer_.out().taken.store(taken_, kPublishes);
  peer_.Written();
  return true;
}

Status MessageStream::Take(Connection::Events& events, std::uint64_t number,
                           const Inbox::Entry& message, std::uint64_t call) {
  const Expected& expected = expected_[At(number)];
  const Memory& target = expected.target;
  const std::uint64_t address = message.address.load(std::memory_order_relaxed);
  const std::uint32_t bytes = message.bytes.load(std::memory_order_relaxed);
  const Space space = message.space.load(std::memory_order_relaxed);
  const std::uint32_t most =
      target.data != nullptr ? target.bytes : kMostMessageBytes;
  if (bytes > most) {
    return WrongLength(peer_.rank(), bytes, most);
  }
  if (space == Space::kTarget && target.data != nullptr) {
    Close(number);
    return events.Arrived(expected.instance, target.data, bytes);
  }
  return TakeFromRegion(events, number, space, address, bytes, call);
}

Status MessageStream::TakeFromRegion(Connection::Events& events,
                                     std::uint64_t number, Space space,
                                     std::uint64_t offset, std::uint32_t bytes,
                                     std::uint64_t call) {
  Expected& expected = expected_[At(number)];
  const Memory& target = expected.target;
  std::byte* const data = peer_.region().At(bytes == 0 ? 0 : offset, bytes);
  if (data == nullptr) {
    return {StatusCode::kInternal,
            "rank " + std::to_string(peer_.rank()) +
                " sent a message that lies outside of its memory"};
  }
  if (target.data == nullptr) {
    // What a device reads is in no cache of this core's.
    expected.slot = space == Space::kSlot && !target.on_device
                        ? std::span<std::byte>(data, bytes)
                        : std::span<std::byte>();
    return events.Arrived(expected.instance, data, bytes);
  }
  HostCopy(target.data, data, bytes);
  RINGPIPE_RETURN_IF_ERROR(peer_.CheckWhatWasRead(call));
  Released(number);
  return events.Arrived(expected.instance, target.data, bytes);
}

Result<bool> MessageStream::PollReleased(Connection::Events& events) {
  bool happened = false;
  for (std::uint64_t number = oldest_sending_ + 1; number <= sent_; ++number) {
    Sending& sending = sends_[At(number)];
    if (sending.number == number && peer_.in().released[At(number)].load(
                                        std::memory_order_acquire) == number) {
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

}  // namespace ringpipe
