#include "cuda/fake_driver/driver.h"

#include <unistd.h>

#include <csignal>

namespace fake_cuda {

Driver& Driver::Get() {
  static Driver* const driver = new Driver;
  return *driver;
}

Driver::Driver()
    : settings(Settings::Get()),
      calls(settings.fail),
      contexts(settings.devices),
      streams(devices, captures) {
  for (Device device = 0; device < settings.devices; ++device) {
    devices.push_back(std::make_unique<Queues>(
        device, settings.queues, settings.seed, settings.delay_us));
    pools.push_back({device});
  }
}

bool Driver::forked() const {
  const pid_t pid = process.load();
  return pid != 0 && pid != getpid();
}

void Driver::DestroyContext(Context* context) {
  queues_of(*context).AwaitAll();
  streams.DestroyAllOf(context);
  context->legacy = nullptr;
  context->of_threads.clear();
  memory.FreeAllOf(context);
  const std::lock_guard lock(modules_mutex);
  std::erase_if(modules,
                [&](const auto& one) { return one->context == context; });
}

// What FAKE_CUDA_FAIL has besides errors; others it returns.
Result Misbehave(Result demanded) {
  constexpr Result kHangs = -1;
  constexpr Result kCrashes = -2;
  if (demanded == kCrashes) {
    std::signal(SIGSEGV, SIG_DFL);  // also under a sanitizer
    std::raise(SIGSEGV);
  }
  if (demanded != kHangs) {
    return demanded;
  }
  while (true) {
    pause();
  }
}

Result Begin(const char* name, unsigned needs) {
  Driver& driver = Driver::Get();
  if (const Result demanded = driver.calls.Count(name); demanded != kSuccess) {
    return Misbehave(demanded);
  }
  if ((needs & kInitialised) != 0 &&
      (!driver.initialised() || driver.forked())) {
    return kNotInitialized;
  }
  if (const Result sticky = driver.calls.sticky();
      (needs & kLiving) != 0 && sticky != kSuccess) {
    return sticky;
  }
  if ((needs & kContext) != 0 &&
      (Contexts::Current() == nullptr ||
       !driver.contexts.Alive(Contexts::Current()))) {
    return kInvalidContext;
  }
  return (needs & kOutsideCapture) != 0 ? driver.captures.CheckUnsafe()
                                        : kSuccess;
}

}  // namespace fake_cuda
