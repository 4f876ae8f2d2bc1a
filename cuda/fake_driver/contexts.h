#ifndef RINGPIPE_CUDA_FAKE_DRIVER_CONTEXTS_H_
#define RINGPIPE_CUDA_FAKE_DRIVER_CONTEXTS_H_

#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "cuda/fake_driver/abi.h"

namespace fake_cuda {

struct Context {
  Device device;
  bool primary;
  int retained = 0;  // of a primary one
  // Default streams, made when they are first used; of Streams.
  Stream* legacy = nullptr;
  std::map<std::thread::id, Stream*> of_threads = {};
};

// The contexts of all devices, and which is current on each thread. A Context
// is never deleted: a dead one is found out, not followed. Thread-safe.
class Contexts {
 public:
  explicit Contexts(int devices);

  // "Retains the primary context on the device, creating it if necessary"
  // (cuDevicePrimaryCtxRetain).
  Context* Retain(Device device);
  // The context that is to be destroyed, if that was the last; `result` says
  // whether there was anything to release.
  Context* Release(Device device, Result* result);
  bool Active(Device device) const;

  Context* Create(Device device);
  bool Destroy(Context* context);
  bool Alive(const Context* context) const;

  // Of the calling thread. nullptr: none.
  static Context* Current();
  static void Push(Context* context);
  static Context* Pop();
  static void Set(Context* context);

 private:
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Context>> primary_;  // by device
  std::vector<std::unique_ptr<Context>> created_;
  std::vector<const Context*> alive_;
};

}  // namespace fake_cuda

#endif  // RINGPIPE_CUDA_FAKE_DRIVER_CONTEXTS_H_
