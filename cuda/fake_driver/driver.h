#ifndef RINGPIPE_CUDA_FAKE_DRIVER_DRIVER_H_
#define RINGPIPE_CUDA_FAKE_DRIVER_DRIVER_H_

#include <sys/types.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/fake_driver/abi.h"
#include "cuda/fake_driver/calls.h"
#include "cuda/fake_driver/captures.h"
#include "cuda/fake_driver/contexts.h"
#include "cuda/fake_driver/memory.h"
#include "cuda/fake_driver/ptx.h"
#include "cuda/fake_driver/queues.h"
#include "cuda/fake_driver/settings.h"
#include "cuda/fake_driver/streams.h"

namespace fake_cuda {

struct Pool {
  Device device;
};

struct Function {
  const Kernel* kernel;
  Context* context;
  std::atomic<bool> loaded{false};
};

struct Module {
  Context* context;
  std::map<std::string, Kernel> kernels;
  std::map<std::string, std::unique_ptr<Function>> functions;
};

// The whole of it, one a process, as the real one. Never destroyed: threads of
// queues may outlive main().
struct Driver {
  static Driver& Get();

  Driver();
  bool Knows(Device device) const {
    return device >= 0 && device < settings.devices;
  }
  Queues& queues_of(const Context& context) {
    return *devices[static_cast<std::size_t>(context.device)];
  }
  bool initialised() const { return process.load() != 0; }
  // "CUDA cannot be used in a child of fork": its functions say
  // CUDA_ERROR_NOT_INITIALIZED, cuInit too (pytorch #40403).
  bool forked() const;
  // With all that lives in it.
  void DestroyContext(Context* context);

  const Settings& settings;
  Calls calls;
  std::vector<std::unique_ptr<Queues>> devices;
  Contexts contexts;
  Memory memory;
  Captures captures;
  Streams streams;
  std::vector<Pool> pools;        // the default one of each device
  std::atomic<pid_t> process{0};  // that called cuInit; 0: none
  std::mutex modules_mutex;
  std::vector<std::unique_ptr<Module>> modules;
};

// What an entry point needs, and Begin checks.
enum Needs : unsigned {
  kNothing = 0,         // works before cuInit, and whatever has happened
  kInitialised = 1,     // CUDA_ERROR_NOT_INITIALIZED
  kLiving = 2,          // returns the error that sticks, if there is one
  kContext = 4,         // CUDA_ERROR_INVALID_CONTEXT
  kOutsideCapture = 8,  // is "potentially unsafe"
  kWork = kInitialised | kLiving | kContext,
};

// Begins an entry point; whatever it returns that is not kSuccess, the entry
// point returns.
Result Begin(const char* name, unsigned needs);

}  // namespace fake_cuda

// The first line of each entry point.
#define FAKE_CUDA_BEGIN(name, needs)                                 \
  if (const fake_cuda::Result begun = fake_cuda::Begin(name, needs); \
      begun != fake_cuda::kSuccess) {                                \
    return begun;                                                    \
  }

#endif  // RINGPIPE_CUDA_FAKE_DRIVER_DRIVER_H_
