#include "verbs/memory_region.h"

#include <unistd.h>

#include <cerrno>
#include <string>

namespace ringpipe::verbs {
namespace {

// What the kernel counts: every page that [address, address + bytes) touches.
std::uint64_t PinnedBytes(const void* address, std::size_t bytes) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t first = reinterpret_cast<std::uintptr_t>(address) / page;
  const std::uint64_t last =
      (reinterpret_cast<std::uintptr_t>(address) + bytes - 1) / page;
  return (last - first + 1) * page;
}

}  // namespace

Result<std::shared_ptr<ProtectionDomain>> ProtectionDomain::Create(
    std::shared_ptr<Device> device) {
  errno = 0;
  ibv_pd* pd = device->library().alloc_pd(device->context());
  if (pd == nullptr) {
    return device->CallFailed("ibv_alloc_pd", errno);
  }
  return std::shared_ptr<ProtectionDomain>(
      new ProtectionDomain(std::move(device), pd));
}

// Fails only where a region could not be deregistered; closing the device then
// frees both.
ProtectionDomain::~ProtectionDomain() { device_->library().dealloc_pd(pd_); }

Result<MemoryRegion> MemoryRegion::Register(
    std::shared_ptr<ProtectionDomain> pd, const void* address,
    std::size_t bytes, int access) {
  Device& device = *pd->device();
  if (address == nullptr || bytes == 0) {
    return Status(StatusCode::kInvalidArgument,
                  device.info().name + ": no memory to register");
  }
  if (device.info().pins_memory) {
    const Status allowed = CheckProcessMemlock(PinnedBytes(address, bytes));
    RINGPIPE_RETURN_IF_ERROR(allowed.WithContext(device.info().name));
  }
  errno = 0;
  ibv_mr* mr = device.library().reg_mr(pd->get(), const_cast<void*>(address),
                                       bytes, access);
  if (mr != nullptr) {
    return MemoryRegion(std::move(pd), mr);
  }
  const int error = errno;
  // Inside a user namespace CAP_IPC_LOCK exempts from nothing, so that the
  // limit can still be the reason.
  const bool memlock = device.info().pins_memory && error == ENOMEM;
  return device.CallFailed(
      "ibv_reg_mr of " + std::to_string(bytes) + " bytes" +
          (memlock ? " (if locked memory is short, " + MemlockAdvice() + ")"
                   : ""),
      error);
}

MemoryRegion::MemoryRegion(MemoryRegion&& other) noexcept
    : pd_(std::move(other.pd_)), mr_(std::exchange(other.mr_, nullptr)) {}

MemoryRegion& MemoryRegion::operator=(MemoryRegion&& other) noexcept {
  if (this != &other) {
    static_cast<void>(Deregister());
    pd_ = std::move(other.pd_);
    mr_ = std::exchange(other.mr_, nullptr);
  }
  return *this;
}

MemoryRegion::~MemoryRegion() { static_cast<void>(Deregister()); }

Status MemoryRegion::Deregister() {
  if (mr_ == nullptr) {
    return Status::Ok();
  }
  Device& device = *pd_->device();
  const int error = device.library().dereg_mr(std::exchange(mr_, nullptr));
  Status status =
      error == 0 ? Status::Ok() : device.CallFailed("ibv_dereg_mr", error);
  pd_.reset();
  return status;
}

}  // namespace ringpipe::verbs
