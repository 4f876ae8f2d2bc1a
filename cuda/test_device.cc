#include "cuda/test_device.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <type_traits>

namespace ringpipe {
namespace {

constexpr unsigned kAttachGlobal = 1;  // CU_MEM_ATTACH_GLOBAL

CudaDriver::Pointer AddressOf(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

}  // namespace

Result<std::unique_ptr<TestDevice>> TestDevice::Open(int ordinal) {
  RINGPIPE_ASSIGN_OR_RETURN(const CudaDriver driver, CudaDriver::Load());
  std::unique_ptr<TestDevice> device(new TestDevice(driver));
  RINGPIPE_RETURN_IF_ERROR(device->FindFunctions());
  RINGPIPE_RETURN_IF_ERROR(device->Retain(ordinal));
  return device;
}

Status TestDevice::FindFunctions() {
  std::string missing;
  const auto find = [&](auto& member, const char* name, const char* symbol) {
    member = reinterpret_cast<std::remove_reference_t<decltype(member)>>(
        CudaDriver::Find(name, symbol));
    if (member == nullptr) {
      missing = name;
    }
  };
#define RINGPIPE_CUDA_TEST_FIND(member, name, symbol, parameters) \
  find(member, #name, #symbol);
  RINGPIPE_CUDA_TEST_FUNCTIONS(RINGPIPE_CUDA_TEST_FIND)
#undef RINGPIPE_CUDA_TEST_FIND
  return missing.empty() ? Status::Ok()
                         : Status(StatusCode::kUnavailable,
                                  "the driver has no function " + missing);
}

Status TestDevice::Retain(int ordinal) {
  const auto available = [this](const char* what, CudaDriver::Error error) {
    return error == CudaDriver::kSuccess
               ? Status::Ok()
               : Status(StatusCode::kUnavailable,
                        std::string(what) + ": " + driver_.NameOf(error));
  };
  RINGPIPE_RETURN_IF_ERROR(available("cuInit", driver_.init(0)));
  RINGPIPE_RETURN_IF_ERROR(
      available("cuDeviceGet", driver_.device_get(&device_, ordinal)));
  CudaDriver::Context context = nullptr;
  RINGPIPE_RETURN_IF_ERROR(
      available("cuDevicePrimaryCtxRetain",
                driver_.primary_context_retain(&context, device_)));
  context_ = context;
  return Check("cuCtxPushCurrent", driver_.context_push(context_));
}

TestDevice::~TestDevice() {
  if (context_ != nullptr) {
    CudaDriver::Context context = nullptr;
    static_cast<void>(driver_.context_pop(&context));
    static_cast<void>(driver_.primary_context_release(device_));
  }
}

void TestDevice::MakeCurrent() const {
  static_cast<void>(context_set_current(context_));
}

Result<void*> TestDevice::Allocate(std::size_t bytes) const {
  CudaDriver::Pointer pointer = 0;
  RINGPIPE_RETURN_IF_ERROR(
      Check("cuMemAlloc",
            memory_allocate(&pointer, std::max<std::size_t>(bytes, 1))));
  return reinterpret_cast<void*>(pointer);
}

Result<void*> TestDevice::AllocateManaged(std::size_t bytes) const {
  CudaDriver::Pointer pointer = 0;
  RINGPIPE_RETURN_IF_ERROR(
      Check("cuMemAllocManaged",
            memory_allocate_managed(&pointer, std::max<std::size_t>(bytes, 1),
                                    kAttachGlobal)));
  return reinterpret_cast<void*>(pointer);
}

void TestDevice::Free(void* memory) const {
  static_cast<void>(memory_free(AddressOf(memory)));
}

Status TestDevice::Copy(void* target, const void* source,
                        std::size_t bytes) const {
  if (bytes == 0) {
    return Status::Ok();
  }
  RINGPIPE_RETURN_IF_ERROR(Check(
      "cuMemcpy", memory_copy(AddressOf(target), AddressOf(source), bytes)));
  // A copy of memory that is not pinned may still be on its way, and other
  // streams do not wait for it.
  return Check("cuStreamSynchronize", stream_synchronize(nullptr));
}

std::string TestDevice::Describe() const {
  char name[200] = "";
  std::size_t bytes = 0;
  int major = 0;
  int minor = 0;
  int version = 0;
  static_cast<void>(driver_.device_get_name(name, sizeof(name), device_));
  static_cast<void>(device_total_memory(&bytes, device_));
  static_cast<void>(driver_.device_get_attribute(
      &major, CudaDriver::kComputeCapabilityMajor, device_));
  static_cast<void>(driver_.device_get_attribute(
      &minor, CudaDriver::kComputeCapabilityMinor, device_));
  static_cast<void>(driver_.driver_get_version(&version));
  char text[300];
  std::snprintf(text, sizeof(text),
                "%s (compute capability %d.%d, %.0f GiB), CUDA %d.%d of the "
                "driver",
                name, major, minor, static_cast<double>(bytes) / (1 << 30),
                version / 1000, version % 1000 / 10);
  return text;
}

Status TestDevice::Check(const std::string& what,
                         CudaDriver::Error error) const {
  return error == CudaDriver::kSuccess
             ? Status::Ok()
             : Status(StatusCode::kDeviceError,
                      what + ": " + driver_.NameOf(error));
}

}  // namespace ringpipe
