#include "pipeline/host/host_peer.h"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

namespace ringpipe {

HostPeer::HostPeer(int self, int rank, std::shared_ptr<Region> own,
                   Waker& waker)
    : self_(self),
      rank_(rank),
      own_(std::move(own)),
      waker_(waker),
      in_(&RegionHeader::Of(*own_).inbox(rank)) {}

void HostPeer::Attach(RegionPeer peer) {
  end_ = std::move(peer);
  RegionHeader& header = RegionHeader::Of(*end_.region);
  sleeper_ = Sleeper(header, end_.wake.get());
  waker_.Attach(rank_, sleeper_);
  out_ = &header.inbox(self_);
}

Status HostPeer::WhyEnded(std::uint64_t call) const {
  RINGPIPE_RETURN_IF_ERROR(Reason(call));
  return has_died_ ? Status(StatusCode::kPeerLost,
                            "rank " + std::to_string(rank_) + " (pid " +
                                std::to_string(end_.pid) + ") has died")
                   : Status::Ok();
}

Status HostPeer::HasEnded(std::uint64_t call) const {
  Status reason = Reason(call);
  return !reason.ok()
             ? reason
             : Status(StatusCode::kPeerLost, "rank " + std::to_string(rank_) +
                                                 " has ended the communicator");
}

Status HostPeer::CheckWhatWasRead(std::uint64_t call) const {
  std::atomic_thread_fence(std::memory_order_acquire);
  return header().revoked.load(std::memory_order_relaxed) == 0 ? Status::Ok()
                                                               : HasEnded(call);
}

// A peer's text is of its choice: without what a terminal would take for a
// command. Letters beyond ASCII stay.
Status HostPeer::Reason(std::uint64_t call) const {
  const Failure& failure = header().failure;
  if (failure.state.load(std::memory_order_acquire) != Failure::kThere ||
      failure.first.load(std::memory_order_relaxed) >= call) {
    return Status::Ok();
  }
  const std::uint32_t code = failure.code.load(std::memory_order_relaxed);
  const std::size_t bytes = std::min<std::size_t>(
      failure.bytes.load(std::memory_order_relaxed), failure.text.size());
  std::string text(failure.text.data(), bytes);
  std::replace_if(
      text.begin(), text.end(),
      [](unsigned char c) {
        constexpr unsigned char kDelete = 0x7f;
        return c < ' ' || c == kDelete;
      },
      '?');
  const bool known =
      code > 0 && code <= static_cast<std::uint32_t>(StatusCode::kInternal);
  return {known ? static_cast<StatusCode>(code) : StatusCode::kAborted, text};
}

void HostPeer::Tell(RegionHeader& own, const Status& reason,
                    std::uint64_t first) {
  Failure& failure = own.failure;
  std::uint32_t none = Failure::kNone;
  if (!failure.state.compare_exchange_strong(none, Failure::kBeingWritten)) {
    return;
  }
  failure.first.store(first, std::memory_order_relaxed);
  failure.code.store(static_cast<std::uint32_t>(reason.code()),
                     std::memory_order_relaxed);
  failure.bytes.store(static_cast<std::uint32_t>(reason.message().copy(
                          failure.text.data(), failure.text.size())),
                      std::memory_order_relaxed);
  failure.state.store(Failure::kThere, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

// One that has died does not, whatever it said last.
bool HostPeer::Writes() const {
  return in_->writing.load(std::memory_order_seq_cst) != 0 && !IsDead();
}

bool HostPeer::IsDead() const {
  if (end_.pidfd == nullptr) {
    return false;
  }
  pollfd process = {end_.pidfd->get(), POLLIN, 0};
  return poll(&process, 1, 0) == 1 && (process.revents & POLLIN) != 0;
}

}  // namespace ringpipe
