#ifndef RINGPIPE_PIPELINE_ABORT_SIGNAL_H_
#define RINGPIPE_PIPELINE_ABORT_SIGNAL_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/status.h"

namespace ringpipe {

// The one flag that every wait looks at, and the reason: the first one given
// wins. Calls are numbered from 0; a rank that leaves ends only those that it
// has not ended itself. Thread-safe.
class AbortSignal {
 public:
  static Result<std::unique_ptr<AbortSignal>> Create();
  AbortSignal(const AbortSignal&) = delete;
  AbortSignal& operator=(const AbortSignal&) = delete;

  // For all calls from number `first` on. Returns the reason that won:
  // `reason`, or an earlier one for as many calls.
  Status Raise(const Status& reason, std::uint64_t first = 0);

  bool raised(std::uint64_t call) const {
    return call >= first_.load(std::memory_order_acquire);
  }

  // For any call.
  bool raised() const {
    return first_.load(std::memory_order_acquire) != kNone;
  }

  // The first call for which it is raised, where it is for `call`; else 0.
  std::uint64_t FirstOf(std::uint64_t call) const {
    const std::uint64_t first = first_.load(std::memory_order_acquire);
    return call >= first ? first : 0;
  }

  // A rank that fails tells the others why, and closes its connections; they
  // may see the latter first. Waits until it is raised for `call`, or
  // `deadline`.
  void AwaitReason(std::uint64_t call, Deadline deadline) const;
  // A usual time for that.
  static constexpr std::chrono::milliseconds kReasonPatience{300};

  // Ok until raised for `call`.
  Status reason(std::uint64_t call) const;

  // For poll(): readable once it is raised for `call`, and no longer for what
  // was raised for later ones. The only thread that waits.
  void Rearm(std::uint64_t call) const;
  int fd() const { return heard_.get(); }
  // Whether the descriptors are still there: DescriptorsClosed. A system call.
  bool is_intact() const { return heard_.IsOpen(); }

 private:
  AbortSignal(FileDescriptor heard, FileDescriptor told)
      : heard_(std::move(heard)), told_(std::move(told)) {}
  void Wake() const;

  // A pair of sockets. Unlike an eventfd, it does no harm to a file of somebody
  // else's that has got its number.
  const FileDescriptor heard_;
  const FileDescriptor told_;
  static constexpr auto kNone = std::numeric_limits<std::uint64_t>::max();
  // Of the calls for which it is raised.
  std::atomic<std::uint64_t> first_ = kNone;
  mutable std::mutex mutex_;
  Status reason_;  // guarded by mutex_
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_ABORT_SIGNAL_H_
