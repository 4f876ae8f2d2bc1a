#include "verbs/memory_region.h"

#include <unistd.h>

#include <cerrno>
#include <string>

#include "verbs/creation_failure.h"

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

// nullptr, with errno, where the device refuses.
ibv_mr* RegisterWith(const Library& library, ibv_pd* pd, const void* address,
                     std::size_t bytes, int access, bool relaxed) {
  void* const memory = const_cast<void*>(address);
  if (relaxed && library.reg_mr_iova2 != nullptr) {
    // ibv_reg_mr passes optional flags on to kernels that do not know them;
    // this drops them there. A device may still refuse.
    ibv_mr* mr = library.reg_mr_iova2(
        pd, memory, bytes, reinterpret_cast<std::uintptr_t>(address),
        static_cast<unsigned>(access) | IBV_ACCESS_RELAXED_ORDERING);
    if (mr != nullptr) {
      return mr;
    }
  }
  errno = 0;
  return library.reg_mr(pd, memory, bytes, access);
}

}  // namespace

Result<std::shared_ptr<ProtectionDomain>> ProtectionDomain::Create(
    std::shared_ptr<Device> device) {
  // From here on the destructor gives back.
  std::shared_ptr<ProtectionDomain> created(
      new ProtectionDomain(std::move(device)));
  Device& opened = *created->device_;
  errno = 0;
  created->pd_ = opened.library().alloc_pd(opened.context());
  if (created->pd_ == nullptr) {
    return CreationFailed(opened, LimitedObject::kProtectionDomain,
                          "ibv_alloc_pd", errno);
  }
  return created;
}

// Fails only where a region could not be deregistered; closing the device then
// frees both.
ProtectionDomain::~ProtectionDomain() {
  if (pd_ != nullptr) {
    device_->library().dealloc_pd(pd_);
  }
}

Result<MemoryRegion> MemoryRegion::Register(
    std::shared_ptr<ProtectionDomain> pd, const void* address,
    std::size_t bytes, int access, bool relaxed) {
  Device& device = *pd->device();
  if (address == nullptr || bytes == 0) {
    return Status(StatusCode::kInvalidArgument,
                  device.info().name + ": no memory to register");
  }
  if (device.info().pins_memory) {
    const Status allowed = CheckProcessMemlock(PinnedBytes(address, bytes));
    RINGPIPE_RETURN_IF_ERROR(allowed.WithContext(device.info().name));
  }
  ibv_mr* mr = RegisterWith(device.library(), pd->get(), address, bytes, access,
                            relaxed);
  if (mr != nullptr) {
    return MemoryRegion(std::move(pd), mr);
  }
  // ENOMEM may be RLIMIT_MEMLOCK's all the same: inside a user namespace
  // CAP_IPC_LOCK exempts from nothing.
  return CreationFailed(device, LimitedObject::kMemoryRegion,
                        "ibv_reg_mr of " + std::to_string(bytes) + " bytes",
                        errno);
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
