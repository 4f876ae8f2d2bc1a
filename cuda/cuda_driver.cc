#include "cuda/cuda_driver.h"

#include <dlfcn.h>

namespace ringpipe {
namespace {

template <typename Function>
void Find(void* library, const char* name, Function** function,
          std::string* missing) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  if (*function == nullptr && missing->empty()) {
    *missing = name;
  }
}

}  // namespace

Result<CudaDriver> CudaDriver::Load() {
  // Stays loaded: it is the process's, and the runtime's too.
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const message = dlerror();
    return Status(StatusCode::kUnavailable,
                  "CUDA: no driver: " +
                      std::string(message != nullptr ? message : "dlopen") +
                      "; install NVIDIA's driver, or start the container with "
                      "its GPUs");
  }
  CudaDriver driver;
  std::string missing;
  // The names that cuda.h's macros stand for.
  Find(library, "cuInit", &driver.init, &missing);
  Find(library, "cuPointerGetAttributes", &driver.pointer_get_attributes,
       &missing);
  Find(library, "cuDeviceGet", &driver.device_get, &missing);
  Find(library, "cuDevicePrimaryCtxRetain", &driver.primary_context_retain,
       &missing);
  Find(library, "cuDevicePrimaryCtxRelease_v2", &driver.primary_context_release,
       &missing);
  Find(library, "cuCtxPushCurrent_v2", &driver.context_push, &missing);
  Find(library, "cuCtxPopCurrent_v2", &driver.context_pop, &missing);
  Find(library, "cuGetErrorName", &driver.get_error_name, &missing);
  if (!missing.empty()) {
    return Status(StatusCode::kUnavailable,
                  "CUDA: the driver (libcuda.so.1) has no function " + missing +
                      "; install a newer one");
  }
  return driver;
}

std::string CudaDriver::NameOf(Error error) const {
  const char* name = nullptr;
  if (get_error_name == nullptr || get_error_name(error, &name) != kSuccess ||
      name == nullptr) {
    name = "unknown error";
  }
  return std::string(name) + " (" + std::to_string(error) + ")";
}

}  // namespace ringpipe
