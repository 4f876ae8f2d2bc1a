#ifndef RINGPIPE_CUDA_FAKE_DRIVER_CONTROL_CLIENT_H_
#define RINGPIPE_CUDA_FAKE_DRIVER_CONTROL_CLIENT_H_

#include <dlfcn.h>

#include <optional>
#include <type_traits>

#include "cuda/fake_driver/control.h"

namespace fake_cuda {

// The functions of control.h, for a test that is not linked with the library.
struct Control {
#define FAKE_CUDA_CONTROL_MEMBER(result, name, parameters) \
  result(*name) parameters = nullptr;
  FAKE_CUDA_CONTROLS(FAKE_CUDA_CONTROL_MEMBER)
#undef FAKE_CUDA_CONTROL_MEMBER

  // Nothing where libcuda.so.1 is the real one, or is not there.
  static std::optional<Control> Find() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      return std::nullopt;
    }
    Control control;
    bool all = true;
    const auto find = [&](auto& member, const char* name) {
      member = reinterpret_cast<std::remove_reference_t<decltype(member)>>(
          dlsym(library, name));
      all = all && member != nullptr;
    };
#define FAKE_CUDA_CONTROL_FIND(result, name, parameters) \
  find(control.name, #name);
    FAKE_CUDA_CONTROLS(FAKE_CUDA_CONTROL_FIND)
#undef FAKE_CUDA_CONTROL_FIND
    return all ? std::optional(control) : std::nullopt;
  }
};

}  // namespace fake_cuda

#endif  // RINGPIPE_CUDA_FAKE_DRIVER_CONTROL_CLIENT_H_
