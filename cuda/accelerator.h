// Whose memory the user's buffers are in, and how bytes move between them and
// the registered slots.
#ifndef RINGPIPE_CUDA_ACCELERATOR_H_
#define RINGPIPE_CUDA_ACCELERATOR_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "reduction/data_type.h"
#include "reduction/scaling.h"

namespace ringpipe {

// A point in a stream of work that the caller has given to a device.
class StreamMark {
 public:
  virtual ~StreamMark() = default;

  // Whether the device has done all that comes before it; does not wait.
  // kDeviceError where it has failed. One thread at a time.
  virtual Result<bool> Passed() = 0;
};

// Starts copies and reductions that complete later. "Slot" memory is host
// memory that PrepareSlots was told of; "user" memory is the accelerator's.
//
// Every operation returns a Ticket at once; Poll says when it is done. The
// operations of one Lane complete in the order in which they were started;
// different lanes overlap. A synchronous accelerator (host memory) has done the
// work when the call returns.
//
// Nothing orders the lanes among each other, and starting an operation reads
// and writes nothing yet: whoever needs the result of one, or reuses the memory
// that it reads, first sees kDone for it. Operations of no bytes are fine, with
// null pointers too.
//
// One thread at a time drives an Accelerator; Owns, Mark, Take and GiveBack may
// be called from any.
class Accelerator {
 public:
  // One for each stage of the pipeline that uses the accelerator.
  enum class Lane { kCopyIn, kReduce, kCopyOut };
  struct Ticket {
    Lane lane = Lane::kCopyIn;
    // 0: it is done already; work that is to be polled has 1 or more.
    std::uint64_t sequence = 0;
  };
  enum class Progress { kPending, kDone, kFailed };

  // The most that one Reduce takes besides `own`.
  static constexpr int kMostSources = 8;

  // Where a reduction writes its result: to one place or, the same, to two.
  struct Targets {
    Targets(void* one) : first(one) {}  // NOLINT: most have one
    Targets(void* one, void* other) : first(one), second(other) {}

    void* first;
    void* second = nullptr;
  };

  virtual ~Accelerator() = default;

  // Who drives it takes it first. False where somebody else has it.
  bool Take() { return !taken_.exchange(true); }
  void GiveBack() { taken_.store(false); }

  // "host", "cuda:0", ...
  virtual std::string name() const = 0;

  // GPUs as numbers, which are the same in all processes of a host. 0 and none
  // where this is no GPU, or the driver does not say.
  struct Gpus {
    std::uint64_t own = 0;
    std::vector<std::uint64_t> visible;  // to this process, `own` among them
  };
  // After PrepareSlots.
  virtual Gpus gpus() const { return {}; }

  // Whether `pointer` is memory of this accelerator. kInvalidArgument where it
  // is memory that neither this accelerator nor the host can use: another
  // device's. Cheap; takes no resources of the device.
  virtual Result<bool> Owns(const void* pointer) = 0;

  // Marks the end of what the caller has put into `stream` until now: CUDA's
  // handle of a stream of this accelerator's device, or one of the handles that
  // each device has. nullptr and 1 (CU_STREAM_LEGACY) are the legacy default
  // stream: that of the accelerator's device, whichever is current on this
  // thread, if the call has memory of the accelerator (`own_memory`). Else, as
  // 2 (CU_STREAM_PER_THREAD) always, it is the current device's, which has to
  // be the accelerator's. kInvalidArgument where the stream is none of those,
  // and where a graph is captured from it: that is done later, or never. The
  // mark must not outlive this. Nothing on the device waits for the mark.
  virtual Result<std::shared_ptr<StreamMark>> Mark(void* stream,
                                                   bool own_memory);

  // Makes `bytes` of host memory at `slots` fit for the operations below (pins
  // them), until ReleaseSlots; the first time also makes whatever the device
  // needs to work, which may take a second. Before any operation. Nothing to do
  // for host memory.
  virtual Status PrepareSlots(void* slots, std::size_t bytes) = 0;
  // False where the device might still use them, as after a Drain that said so:
  // they must then stay mapped, for as long as the process lives.
  virtual bool ReleaseSlots(void* slots) = 0;

  // Whether all of it lies in memory that PrepareSlots was told of.
  virtual bool IsSlot(const void* memory, std::size_t bytes) const = 0;

  // Lane kCopyIn: slot = user.
  virtual Ticket CopyIn(void* slot, const void* user, std::size_t bytes) = 0;

  // Lane kCopyOut: user = slot.
  virtual Ticket CopyOut(void* user, const void* slot, std::size_t bytes) = 0;
  // The same for a piece of user memory which as a whole is more than the
  // caches hold: past them, where there is such a thing.
  virtual Ticket CopyOutNonTemporal(void* user, const void* slot,
                                    std::size_t bytes) {
    return CopyOut(user, slot, bytes);
  }

  // Lane kCopyOut: target = source, both user memory; they do not overlap.
  virtual Ticket CopyWithin(void* target, const void* source,
                            std::size_t bytes) = 0;

  // Lane kReduce: target[i] = own[i] OP received[0][i] OP received[1][i] ...,
  // from left to right, for each of the targets, which do not overlap.
  // `received` has 1 to kMostSources pointers, and is itself read only during
  // the call. Each of these is user or slot memory; each of `own` and
  // `received` is exactly a target, or does not overlap it; they may overlap
  // each other. `scaling` says what else is done to them, and
  // to the result. Type and op are valid.
  virtual Ticket Reduce(DataType type, ReduceOp op, Targets targets,
                        const void* own, std::span<const void* const> received,
                        std::size_t count, const Scaling& scaling) = 0;

  // Lane kCopyIn or kCopyOut: target[i] = source[i] * factor, of a
  // floating-point type. Each is user or slot memory; they are the same, or do
  // not overlap.
  virtual Ticket Scale(Lane lane, DataType type, void* target,
                       const void* source, std::size_t count,
                       double factor) = 0;

  // What has become of an operation; does not wait. What an operation wrote is
  // visible to the caller after kDone. After kFailed the accelerator is
  // unusable, what had not been polled done may have been done or not, and
  // error() says why.
  virtual Progress Poll(Ticket ticket) = 0;
  virtual Status error() const = 0;

  // Waits until nothing that was started can touch user memory or slots any
  // more. False if the device has not come to that by `deadline`: nobody may
  // use that memory again, and the accelerator leaves all that the device might
  // still use as it is, for ever. Destructors drain too, for 2 s.
  virtual bool Drain(Deadline deadline) = 0;

 private:
  std::atomic<bool> taken_ = false;
};

// One CUDA device: the one whose memory Owns is first asked about; if
// PrepareSlots comes before that, the current one of the calling thread. Owns
// device and managed memory. Later calls may come from threads with another
// current device, or none, which they leave as it was.
//
// Nothing is made on a GPU, CUDA is not initialised, nor is the driver loaded,
// before PrepareSlots; until somebody else loads it, which may be noticed 10 ms
// later, all memory is the host's. That there is no driver, or no device, is
// said by PrepareSlots (kUnavailable).
Result<std::unique_ptr<Accelerator>> CreateCudaAccelerator();

}  // namespace ringpipe

#endif  // RINGPIPE_CUDA_ACCELERATOR_H_
