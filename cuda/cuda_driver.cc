#include "cuda/cuda_driver.h"

#include <dlfcn.h>

#include <cstdint>

namespace ringpipe {
namespace {

// The version of the interface that is asked for: that of the table.
constexpr int kVersion = 12000;

// cuGetProcAddress as it is since CUDA 12.0.
using GetProcAddress = CudaDriver::Error (*)(const char* name, void** function,
                                             int version, std::uint64_t flags,
                                             int* status);

constexpr const char* kLibrary = "libcuda.so.1";

// Stays loaded: it is the process's.
void* OpenLibrary() { return dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL); }

void* FindIn(void* library, const char* name, const char* symbol) {
  void* function = nullptr;
  const auto get =
      reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
  if (get != nullptr &&
      get(name, &function, kVersion, 0, nullptr) == CudaDriver::kSuccess &&
      function != nullptr) {
    return function;
  }
  return dlsym(library, symbol);
}

Status NoDriver() {
  const char* const message = dlerror();
  return {StatusCode::kUnavailable,
          "CUDA: no driver: " +
              std::string(message != nullptr ? message : "dlopen") +
              "; install NVIDIA's driver, or start the container with its "
              "GPUs"};
}

}  // namespace

Result<CudaDriver> CudaDriver::Load() {
  void* const library = OpenLibrary();
  if (library == nullptr) {
    return NoDriver();
  }
  CudaDriver driver;
  std::string missing;
  const auto find = [&](auto& member, const char* name, const char* symbol) {
    member = reinterpret_cast<std::remove_reference_t<decltype(member)>>(
        FindIn(library, name, symbol));
    if (member == nullptr && missing.empty()) {
      missing = name;
    }
  };
#define RINGPIPE_CUDA_FIND(member, name, symbol, parameters) \
  find(driver.member, #name, #symbol);
  RINGPIPE_CUDA_FUNCTIONS(RINGPIPE_CUDA_FIND)
#undef RINGPIPE_CUDA_FIND
  if (!missing.empty()) {
    return Status(StatusCode::kUnavailable,
                  "CUDA: the driver (libcuda.so.1) has no function " + missing +
                      "; install a newer one");
  }
  return driver;
}

bool CudaDriver::Loaded() {
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (library == nullptr) {
    return false;
  }
  dlclose(library);
  return true;
}

void* CudaDriver::Find(const char* name, const char* symbol) {
  void* const library = OpenLibrary();
  return library == nullptr ? nullptr : FindIn(library, name, symbol);
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
