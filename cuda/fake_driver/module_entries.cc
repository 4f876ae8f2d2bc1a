// Entry points about modules, kernels and their launch.
#include <cstdio>
#include <cstring>
#include <exception>

#include "cuda/fake_driver/driver.h"
#include "cuda/fake_driver/entry_points.h"
#include "cuda/fake_driver/interpreter.h"

namespace fake_cuda {
namespace {

constexpr unsigned kMostThreads = 1024;

// Says why, since the number of the error says little.
void Say(const char* what, const std::string& why) {
  std::fprintf(stderr, "fake CUDA: %s: %s\n", what, why.c_str());
}

void RunKernel(const Kernel& kernel, Interpreter::Shape shape,
               const std::vector<unsigned char>& parameters, Device device) {
  Driver& driver = Driver::Get();
  if (driver.calls.sticky() != kSuccess) {
    return;  // a context that has ended does nothing more
  }
  try {
    Interpreter(kernel, shape, parameters, [&](Address address) {
      return driver.memory.OnDevice(address, device);
    }).Run();
  } catch (const Fault& fault) {
    char address[32];
    std::snprintf(address, sizeof(address), "0x%llx", fault.address);
    Say(kernel.name.c_str(), "error " + std::to_string(fault.error) + " at " +
                                 address + ": " + fault.text);
    driver.calls.Stick(fault.error);
  } catch (const std::exception& unknown) {
    Say(kernel.name.c_str(), unknown.what());
    driver.calls.Stick(kIllegalInstruction);
  }
}

// "Loading a kernel may require context synchronization" (CUDA Programming
// Guide, Lazy Loading).
void LoadLazily(Function& function) {
  if (!function.loaded.exchange(true) && Driver::Get().settings.lazy) {
    Driver::Get().queues_of(*function.context).AwaitAll();
  }
}

std::vector<unsigned char> CopyParameters(const Kernel& kernel,
                                          void** parameters) {
  std::vector<unsigned char> copy(kernel.parameter_bytes);
  for (std::size_t i = 0; i < kernel.parameters.size(); ++i) {
    std::memcpy(copy.data() + kernel.parameters[i].offset, parameters[i],
                kernel.parameters[i].bytes);
  }
  return copy;
}

bool IsFunction(const Function* function) {
  Driver& driver = Driver::Get();
  const std::lock_guard lock(driver.modules_mutex);
  for (const auto& module : driver.modules) {
    for (const auto& [name, known] : module->functions) {
      if (known.get() == function) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

FAKE_CUDA_ENTRY Result cuModuleLoadData(Module** module_, const void* image) {
  FAKE_CUDA_BEGIN("cuModuleLoadData", kWork | kOutsideCapture)
  Driver& driver = Driver::Get();
  auto module = std::make_unique<Module>();
  module->context = Contexts::Current();
  try {
    module->kernels = ParsePtx(static_cast<const char*>(image));
  } catch (const std::exception& unknown) {
    Say("PTX", unknown.what());
    return kInvalidPtx;
  }
  *module_ = module.get();
  const std::lock_guard lock(driver.modules_mutex);
  driver.modules.push_back(std::move(module));
  return kSuccess;
}

FAKE_CUDA_ENTRY Result cuModuleUnload(Module* module_) {
  FAKE_CUDA_BEGIN("cuModuleUnload", kWork)
  Driver& driver = Driver::Get();
  driver.queues_of(*Contexts::Current()).AwaitAll();
  const std::lock_guard lock(driver.modules_mutex);
  return std::erase_if(driver.modules,
                       [&](const auto& one) { return one.get() == module_; }) ==
                 0
             ? kInvalidHandle
             : kSuccess;
}

FAKE_CUDA_ENTRY Result cuModuleGetFunction(Function** function, Module* module_,
                                           const char* name) {
  FAKE_CUDA_BEGIN("cuModuleGetFunction", kWork)
  Driver& driver = Driver::Get();
  const std::lock_guard lock(driver.modules_mutex);
  for (const auto& module : driver.modules) {
    if (module.get() != module_) {
      continue;
    }
    const auto kernel = module->kernels.find(name);
    if (kernel == module->kernels.end()) {
      return kNotFound;
    }
    auto& known = module->functions[name];
    if (known == nullptr) {
      known = std::make_unique<Function>();
      known->kernel = &kernel->second;
      known->context = module->context;
    }
    *function = known.get();
    return kSuccess;
  }
  return kInvalidHandle;
}

FAKE_CUDA_ENTRY Result cuLaunchKernel(Function* function, unsigned grid_x,
                                      unsigned grid_y, unsigned grid_z,
                                      unsigned block_x, unsigned block_y,
                                      unsigned block_z,
                                      unsigned /*shared_bytes*/, Stream* stream,
                                      void** parameters, void** extra) {
  FAKE_CUDA_BEGIN("cuLaunchKernel", kWork)
  Driver& driver = Driver::Get();
  Stream* const found = driver.streams.Find(stream, Contexts::Current());
  // The kernel's module, the stream and the caller are of one context.
  if (found == nullptr || !IsFunction(function) ||
      found->context != Contexts::Current() ||
      function->context != found->context) {
    return kInvalidHandle;
  }
  if (grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1) {
    return kNotSupported;  // by this driver
  }
  if (grid_x == 0 || block_x == 0 || block_x > kMostThreads ||
      extra != nullptr) {
    return kInvalidValue;
  }
  if (driver.captures.Of(found) == nullptr) {
    LoadLazily(*function);
  }
  return driver.streams.Put(
      found,
      [kernel = function->kernel, shape = Interpreter::Shape{grid_x, block_x},
       copy = CopyParameters(*function->kernel, parameters),
       device = found->context->device](const Queues::Dawdle& dawdle) {
        RunKernel(*kernel, shape, copy, device);
        dawdle();
      });
}

}  // namespace fake_cuda
