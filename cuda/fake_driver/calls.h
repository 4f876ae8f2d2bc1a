#ifndef RINGPIPE_CUDA_FAKE_DRIVER_CALLS_H_
#define RINGPIPE_CUDA_FAKE_DRIVER_CALLS_H_

#include <atomic>
#include <map>
#include <mutex>
#include <string>

#include "cuda/fake_driver/abi.h"

namespace fake_cuda {

// The calls of entry points: how many there were, the errors that tests demand,
// and the error of the context that sticks. Thread-safe.
class Calls {
 public:
  // `fail` as FAKE_CUDA_FAIL has it. Aborts where that is malformed.
  explicit Calls(const std::string& fail);

  // Counts a call; the error that was demanded for it.
  Result Count(const char* name);

  // "NAME:NTH:ERROR": false where there is no such entry point.
  bool Fail(const std::string& name, int nth, Result error);
  long count(const std::string& name) const;
  void Reset();

  // An error that "leaves the process in an inconsistent state and any further
  // CUDA work will return the same error" (cuda.h, CUDA_ERROR_ILLEGAL_ADDRESS
  // and its like). The first one stays.
  void Stick(Result error);
  Result sticky() const { return sticky_.load(); }

  // Whether cuda.h says that of the error.
  static bool Sticks(Result error);

 private:
  struct Demand {
    int left;  // the calls until it; 0: every call
    Result error;
  };

  mutable std::mutex mutex_;
  std::map<std::string, long> counts_;
  std::multimap<std::string, Demand> demands_;
  std::atomic<Result> sticky_{kSuccess};
};

// Whether the library has an entry point of that name (cuda.h's, without
// suffix).
bool IsEntryPoint(const std::string& name);

}  // namespace fake_cuda

#endif  // RINGPIPE_CUDA_FAKE_DRIVER_CALLS_H_
