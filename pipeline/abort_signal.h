#ifndef RINGPIPE_PIPELINE_ABORT_SIGNAL_H_
#define RINGPIPE_PIPELINE_ABORT_SIGNAL_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "base/file_descriptor.h"
#include "base/status.h"

namespace ringpipe {

// The one flag that every wait looks at, and the reason: the first one given
// wins. Thread-safe.
class AbortSignal {
 public:
  static Result<std::unique_ptr<AbortSignal>> Create();
  AbortSignal(const AbortSignal&) = delete;
  AbortSignal& operator=(const AbortSignal&) = delete;

  // Returns the reason that won: `reason`, or an earlier one.
  Status Raise(const Status& reason);

  bool raised() const { return raised_.load(std::memory_order_acquire); }

  // A rank that fails tells the others why, and closes its connections; they
  // may see the latter first. Waits until it is raised, for 300 ms at most.
  void AwaitReason() const;

  // Ok until raised.
  Status reason() const;

  // For poll(): readable from the first Raise on. Nobody reads it.
  int fd() const { return fd_.get(); }

 private:
  explicit AbortSignal(FileDescriptor fd) : fd_(std::move(fd)) {}

  const FileDescriptor fd_;
  std::atomic<bool> raised_ = false;
  mutable std::mutex mutex_;
  Status reason_;  // guarded by mutex_
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_ABORT_SIGNAL_H_
