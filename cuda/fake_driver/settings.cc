#include "cuda/fake_driver/settings.h"

#include <cstdio>
#include <cstdlib>

namespace fake_cuda {
namespace {

// A value that is no number, or out of bounds, is a mistake in a test.
long Number(const char* name, long otherwise, long most) {
  const char* const text = std::getenv(name);
  if (text == nullptr) {
    return otherwise;
  }
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (*text == '\0' || *end != '\0' || value < 0 || value > most) {
    std::fprintf(stderr, "fake CUDA: %s=%s is not in 0..%ld\n", name, text,
                 most);
    std::abort();
  }
  return value;
}

Settings Read() {
  Settings settings;
  settings.devices = static_cast<int>(Number("FAKE_CUDA_DEVICES", 2, 16));
  settings.queues = static_cast<int>(Number("FAKE_CUDA_QUEUES", 8, 32));
  settings.seed = static_cast<unsigned>(Number("FAKE_CUDA_SEED", 1, 1L << 31));
  settings.delay_us = Number("FAKE_CUDA_DELAY_US", 20, 10'000'000);
  settings.strict = Number("FAKE_CUDA_STRICT", 1, 1) != 0;
  settings.lazy = Number("FAKE_CUDA_LAZY", 1, 1) != 0;
  settings.same_pointers = Number("FAKE_CUDA_SAME_POINTERS", 0, 1) != 0;
  settings.compute_mode =
      static_cast<int>(Number("FAKE_CUDA_COMPUTE_MODE", 0, 3));
  const char* const fail = std::getenv("FAKE_CUDA_FAIL");
  settings.fail = fail == nullptr ? "" : fail;
  if (settings.queues == 0) {
    std::fprintf(stderr, "fake CUDA: FAKE_CUDA_QUEUES is 0\n");
    std::abort();
  }
  return settings;
}

}  // namespace

const Settings& Settings::Get() {
  static const Settings* const settings = new Settings(Read());
  return *settings;
}

}  // namespace fake_cuda
