#include "pipeline/host/first_message.h"

#include <atomic>
#include <cstring>
#include <string>
#include <utility>

#include "pipeline/host/message_stream.h"
#include "reduction/host_copy.h"

namespace ringpipe {

void FirstMessage::Begin(const Connection::Call& call) {
  lines_.AddReader(peer_.rank());
  has_come_ = said_ = false;
  sends_eagerly_ = call.eager && call.sends;
  expects_eagerly_ = call.eager && call.receives;
  eager_ = Eager::kNone;
}

void FirstMessage::SendEagerly(const Memory& source) {
  lines_.Publish(&source);
  sends_eagerly_ = false;
  said_ = true;
}

bool FirstMessage::Tell() {
  if (!lines_.CanPublish()) {
    return false;
  }
  lines_.Publish(nullptr);
  said_ = true;
  return true;
}

void FirstMessage::Expect(Instance instance, const Memory& target) {
  expects_eagerly_ = false;
  eager_ = Eager::kExpected;
  instance_ = instance;
  target_ = target;
}

bool FirstMessage::Release(Instance instance) {
  if (eager_ == Eager::kNone || instance_ != instance) {
    return false;
  }
  eager_ = Eager::kNone;
  return true;
}

Result<bool> FirstMessage::Poll(Connection::Events& events) {
  bool happened = false;
  if (!has_come_) {
    RINGPIPE_ASSIGN_OR_RETURN(happened, PollCall());
  }
  if (has_come_) {
    RINGPIPE_ASSIGN_OR_RETURN(const bool arrived, PollEager(events));
    happened |= arrived;
  }
  return happened;
}

std::string FirstMessage::Name() const {
  return "rank " + std::to_string(peer_.rank());
}

Result<bool> FirstMessage::PollCall() {
  const CallLine& line = peer_.header().calls[lines_.call() % 2];
  const std::uint64_t call = line.call.load(std::memory_order_acquire);
  if (call < lines_.call()) {
    return false;
  }
  if (call > lines_.call()) {  // it did not wait for this rank to read
    return Status(
        StatusCode::kMismatch,
        Name() + " is at collective call number " + std::to_string(call - 1) +
            ", without rank " + std::to_string(self_) + " at number " +
            std::to_string(lines_.call() - 1) +
            ": all ranks must make the same calls in the same order, with the "
            "same RINGPIPE_ variables");
  }
  if (line.check.load(std::memory_order_relaxed) != lines_.check().word()) {
    const Digest theirs = line.digest.Read();
    std::atomic_thread_fence(std::memory_order_acquire);
    if (line.call.load(std::memory_order_relaxed) != call) {
      return false;  // it goes on without this rank: the next look says so
    }
    RINGPIPE_RETURN_IF_ERROR(
        lines_.check().Compare(peer_.rank(), theirs).status());
    return Status(StatusCode::kInternal,
                  Name() +
                      " says in an unknown way which call it makes: do all "
                      "ranks run the same version of ringpipe?");
  }
  lines_.Saw(peer_.rank());
  has_come_ = true;
  return true;
}

Result<bool> FirstMessage::PollEager(Connection::Events& events) {
  if (eager_ != Eager::kExpected) {
    return false;
  }
  const CallLine& line = peer_.header().calls[lines_.call() % 2];
  const std::uint32_t word = line.payload.load(std::memory_order_acquire);
  if (word == 0) {
    return false;
  }
  const std::uint32_t bytes = word - 1;
  if (bytes > kHostEagerBytes) {
    return WrongLength(peer_.rank(), bytes, kHostEagerBytes);
  }
  const std::byte* data = bytes <= kHostShortBytes ? line.short_payload.data()
                                                   : line.long_payload.data();
  eager_ = Eager::kArrived;
  if (target_.data != nullptr) {
    if (bytes > target_.bytes) {
      return WrongLength(peer_.rank(), bytes, target_.bytes);
    }
    HostCopy(target_.data, data, bytes);
    data = target_.data;
    eager_ = Eager::kNone;
  }
  RINGPIPE_RETURN_IF_ERROR(events.Arrived(instance_, data, bytes));
  return true;
}

}  // namespace ringpipe
