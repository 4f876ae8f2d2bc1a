#ifndef RINGPIPE_CUDA_CUDA_MEMORY_H_
#define RINGPIPE_CUDA_CUDA_MEMORY_H_

#include <atomic>
#include <string>

#include "base/status.h"
#include "cuda/cuda_driver.h"

namespace ringpipe {

// Tells memory of one CUDA device from host memory and from other devices'.
// Which device is the one is decided by the first device memory that it is
// asked about. Makes no context and initialises nothing. Thread-safe.
class CudaMemory {
 public:
  static constexpr int kNone = -1;

  // `driver` outlives it.
  explicit CudaMemory(const CudaDriver& driver) : driver_(driver) {}

  // Whether `pointer` is memory of the device, or managed memory, which all
  // devices reach; false for host memory, pinned or not. On a thread without a
  // context, which real drivers do not always answer, the primary context of a
  // device is pushed for the question, one that is active already; where none
  // is, no device memory of theirs exists.
  //
  // kInvalidArgument, with the reason, where neither host nor device may use
  // it: memory of another device, of a context that is not its device's primary
  // one (that of the runtime, in which our streams are), or a device's in a
  // child of fork; managed memory that does not say for which device.
  // kDeviceError where an error has ended the context: then of host memory too.
  Result<bool> Owns(const void* pointer);

  // Decides for `device`, unless that is done; returns the one decided for.
  int Decide(int device);

  // kNone before it is decided.
  int device() const { return device_.load(); }

  // "cuda:0"; "cuda" before it is decided.
  std::string name() const;

 private:
  // What the driver says of a pointer; of memory that it does not know, 0.
  struct Facts {
    CudaDriver::Context context = nullptr;
    unsigned type = 0;
    unsigned managed = 0;
    int device = kNone;
  };

  CudaDriver::Error Ask(const void* pointer, Facts* facts) const;
  // The same with an active primary context, whichever, pushed.
  CudaDriver::Error AskInContext(const void* pointer, Facts* facts) const;
  Result<bool> WithoutDriver(const void* pointer);
  Result<bool> OwnsManaged(const Facts& facts);
  Status CheckDevice(int device);
  Status CheckContext(const Facts& facts);

  const CudaDriver& driver_;
  std::atomic<int> device_{kNone};
  // The primary context of device_, once it was seen.
  std::atomic<CudaDriver::Context> primary_{nullptr};
  enum class Fork { kUnknown, kNo, kYes };
  std::atomic<Fork> forked_{Fork::kUnknown};
};

}  // namespace ringpipe

#endif  // RINGPIPE_CUDA_CUDA_MEMORY_H_
