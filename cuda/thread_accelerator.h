// An accelerator for tests, whose asynchrony is real although it is no device.
#ifndef RINGPIPE_CUDA_THREAD_ACCELERATOR_H_
#define RINGPIPE_CUDA_THREAD_ACCELERATOR_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "cuda/accelerator.h"

namespace ringpipe {

// Runs each lane on a thread of its own. Before an operation reads its source,
// and again in its middle, it dawdles for a seeded random time: who reuses a
// slot too early, or reads one too soon, gets wrong results, and a report from
// ThreadSanitizer (Poll() == kDone happens after the operation, and nothing
// else does).
//
// Stricter than the interface asks, as a GPU is: an operation whose slot was
// not prepared, or whose user memory is not this accelerator's, fails. So does
// one whose target overlaps in part what it reads.
//
// Thread-safety as for every Accelerator; all that Accelerator does not have
// may be called from any thread.
class ThreadAccelerator final : public Accelerator {
 public:
  struct Options {
    // Of the delays; the same seed gives the same delays in each lane.
    std::uint64_t seed = 1;
    // The longest wait at one point; 0 only yields.
    std::chrono::microseconds max_delay{100};
    std::string name = "thread";
    // Another device, whose memory this one cannot use; not owned, outlives it.
    const ThreadAccelerator* neighbour = nullptr;
  };

  explicit ThreadAccelerator(const Options& options);
  ThreadAccelerator() : ThreadAccelerator(Options()) {}

  // Waits like Drain.
  ~ThreadAccelerator() override;

  ThreadAccelerator(const ThreadAccelerator&) = delete;
  ThreadAccelerator& operator=(const ThreadAccelerator&) = delete;

  // "Device" memory: at least `bytes` zeroes, aligned for every element type.
  // Never nullptr. Freed by Free or with the accelerator.
  void* Allocate(std::size_t bytes);

  // Only what Allocate returned, and only when no operation uses it.
  void Free(void* memory);

  // The next `count` operations succeed; those started after them fail without
  // touching memory.
  void FailAfter(std::uint64_t count);

  // The next PrepareSlots returns this.
  void FailToPrepare(const Status& status);

  // The next Owns returns this.
  void FailToTellOwner(const Status& status);

  // How many pieces of slot memory are prepared.
  std::size_t prepared() const;

  // How many operations that have been started read from that piece.
  std::size_t reads_of(const void* slots) const;

  // Nothing in `lane` that has not begun begins before Resume. Drain resumes.
  void Hold(Lane lane);
  void Resume(Lane lane);

  std::string name() const override { return name_; }
  Result<bool> Owns(const void* pointer) override;
  Status PrepareSlots(void* slots, std::size_t bytes) override;
  bool ReleaseSlots(void* slots) override;
  bool IsSlot(const void* memory, std::size_t bytes) const override;
  Ticket CopyIn(void* slot, const void* user, std::size_t bytes) override;
  Ticket CopyOut(void* user, const void* slot, std::size_t bytes) override;
  Ticket CopyWithin(void* target, const void* source,
                    std::size_t bytes) override;
  Ticket Reduce(DataType type, ReduceOp op, Targets targets, const void* own,
                std::span<const void* const> received, std::size_t count,
                const Scaling& scaling) override;
  Ticket Scale(Lane lane, DataType type, void* target, const void* source,
               std::size_t count, double factor) override;
  Progress Poll(Ticket ticket) override;
  Status error() const override;
  bool Drain(Deadline deadline) override;

 private:
  class Worker;      // a lane's thread and its queue
  struct Operation;  // what waits there

  struct Range {
    const std::byte* begin;
    std::size_t bytes;
    std::size_t reads = 0;  // of slots: reads_of
  };

  bool Allocated(const void* pointer) const;

  // Checks the memory, applies FailAfter, queues.
  Ticket Start(Lane lane, const Operation& operation);
  // Why `operation` must fail; nullptr if it need not.
  const char* Objection(const Operation& operation) const;

  static bool Contains(const Range& range, const void* pointer,
                       std::size_t bytes);
  static bool Contains(const std::vector<Range>& ranges, const void* pointer,
                       std::size_t bytes);

  Worker& worker(Lane lane) const {
    return *workers_[static_cast<std::size_t>(lane)];
  }

  const std::string name_;
  const ThreadAccelerator* const neighbour_;

  // Guards what follows. No worker thread takes it.
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  std::vector<Range> owned_;  // parallel to memory_
  std::vector<Range> slots_;
  std::uint64_t operations_left_ = UINT64_MAX;  // until FailAfter strikes
  Status preparation_;                          // FailToPrepare's
  Status ownership_;                            // FailToTellOwner's

  std::array<std::unique_ptr<Worker>, 3> workers_;  // by Lane
};

}  // namespace ringpipe

#endif  // RINGPIPE_CUDA_THREAD_ACCELERATOR_H_
