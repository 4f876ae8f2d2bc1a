#include "memory_pool/registered_memory.h"

#include <infiniband/verbs.h>

#include <utility>

namespace ringpipe {

void ReleaseRegistered(verbs::MemoryRegion region, verbs::Allocation memory) {
  if (region && !region.Deregister().ok()) {
    // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks)
    new verbs::Allocation(std::move(memory));
  }
}

RegisteredMemory::Buffer::~Buffer() {
  ReleaseRegistered(std::move(region), std::move(memory));
}

Result<void*> RegisteredMemory::Allocate(std::size_t bytes) {
  if (bytes == 0) {
    return Status(StatusCode::kInvalidArgument,
                  "Allocate of 0 bytes: ask for at least 1");
  }
  RINGPIPE_ASSIGN_OR_RETURN(verbs::Allocation memory,
                            pd_->device()->Allocate(bytes));
  RINGPIPE_ASSIGN_OR_RETURN(
      verbs::MemoryRegion region,
      verbs::MemoryRegion::Register(pd_, memory.data(), memory.bytes(),
                                    IBV_ACCESS_LOCAL_WRITE, /*relaxed=*/true));
  std::byte* const address = memory.data();
  const std::lock_guard<std::mutex> lock(mutex_);
  Buffer& buffer = buffers_[address];
  buffer.memory = std::move(memory);
  buffer.region = std::move(region);
  return static_cast<void*>(address);
}

Status RegisteredMemory::Free(void* memory) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (buffers_.erase(static_cast<const std::byte*>(memory)) == 0) {
    return {StatusCode::kInvalidArgument,
            "Free of memory that Allocate did not return, or that was freed "
            "already"};
  }
  return Status::Ok();
}

std::optional<std::uint32_t> RegisteredMemory::Find(const void* address,
                                                    std::size_t bytes) const {
  const auto* begin = static_cast<const std::byte*>(address);
  const std::lock_guard<std::mutex> lock(mutex_);
  auto it = buffers_.upper_bound(begin);
  if (it == buffers_.begin()) {
    return std::nullopt;
  }
  --it;
  const auto& [data, buffer] = *it;
  const std::size_t offset = begin - data;
  if (offset > buffer.memory.bytes() ||
      bytes > buffer.memory.bytes() - offset) {
    return std::nullopt;
  }
  return buffer.region.lkey();
}

}  // namespace ringpipe
