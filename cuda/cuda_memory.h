#ifndef RINGPIPE_CUDA_CUDA_MEMORY_H_
#define RINGPIPE_CUDA_CUDA_MEMORY_H_

#include <atomic>
#include <string>

#include "base/status.h"
#include "cuda/cuda_driver.h"

namespace ringpipe {

// Tells memory of one CUDA device from host memory and from other devices'.
// Which device is the one is decided by the first device memory that it is
// asked about. Makes no context and initialises nothing; takes no lock.
// Thread-safe.
class CudaMemory {
 public:
  static constexpr int kNone = -1;

  // `driver` outlives it.
  explicit CudaMemory(const CudaDriver& driver) : driver_(driver) {}

  // Whether `pointer` is memory of the device, or managed memory, which all
  // devices reach. kInvalidArgument, naming both devices, where it is another
  // device's; false for host memory, pinned or not.
  Result<bool> Owns(const void* pointer);

  // Decides for `device`, unless that is done; returns the one decided for.
  int Decide(int device);

  // kNone before it is decided.
  int device() const { return device_.load(); }

  // "cuda:0"; "cuda" before it is decided.
  std::string name() const;

 private:
  const CudaDriver& driver_;
  std::atomic<int> device_{kNone};
};

}  // namespace ringpipe

#endif  // RINGPIPE_CUDA_CUDA_MEMORY_H_
