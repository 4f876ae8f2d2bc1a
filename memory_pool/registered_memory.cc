#include "memory_pool/registered_memory.h"

#include <infiniband/verbs.h>

#include <new>
#include <string>
#include <utility>

namespace ringpipe {
namespace {

// A process's memory lies in the lower half of all addresses.
bool EndsBeyondMemory(const void* begin, std::size_t bytes) {
  std::ptrdiff_t end = 0;
  return __builtin_add_overflow(reinterpret_cast<std::uintptr_t>(begin), bytes,
                                &end);
}

}  // namespace

RegisteredMemory::Buffer::~Buffer() {
  ReleaseRegistered(std::move(registration), std::move(memory));
}

Result<void*> RegisteredMemory::Allocate(std::size_t bytes) {
  if (bytes == 0) {
    return Status(StatusCode::kInvalidArgument,
                  "Allocate of 0 bytes: ask for at least 1");
  }
  RINGPIPE_ASSIGN_OR_RETURN(Allocation memory, source_->Allocate(bytes));
  RINGPIPE_ASSIGN_OR_RETURN(
      Registration registration,
      Registration::Create(rails_, memory.data(), memory.bytes(),
                           IBV_ACCESS_LOCAL_WRITE, /*relaxed=*/true));
  std::byte* const address = memory.data();
  const std::lock_guard<std::mutex> lock(mutex_);
  Buffer& buffer = buffers_[address];
  buffer.bytes = memory.bytes();
  buffer.memory = std::move(memory);
  buffer.registration = std::move(registration);
  buffer.ready = true;
  return static_cast<void*>(address);
}

Status RegisteredMemory::Free(void* memory) {
  return Remove(memory, /*allocated=*/true, "Free");
}

Status RegisteredMemory::Register(void* memory, std::size_t bytes) {
  if (memory == nullptr || bytes == 0) {
    return {StatusCode::kInvalidArgument,
            "Register of no memory: give an address and at least 1 byte"};
  }
  if (EndsBeyondMemory(memory, bytes)) {
    return {StatusCode::kInvalidArgument,
            "Register of " + std::to_string(bytes) +
                " bytes: no memory is as long as that"};
  }
  const auto* begin = static_cast<const std::byte*>(memory);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (Overlaps(begin, bytes)) {
      return {StatusCode::kInvalidArgument,
              "Register of memory of which a part is registered already: "
              "deregister that first, or register all of it at once"};
    }
    buffers_[begin].bytes = bytes;  // not found before it is registered
  }
  // Pinning takes long, and calls must not wait for it.
  bool writable = true;
  Result<Registration> registration = OutOfMemory();
  try {
    registration = Registration::Create(
        rails_, memory, bytes, IBV_ACCESS_LOCAL_WRITE, /*relaxed=*/true);
    if (!registration.ok() &&
        registration.status().code() != StatusCode::kResourceExhausted) {
      // Pages that may only be read cannot be registered for writing.
      auto read_only =
          Registration::Create(rails_, memory, bytes, 0, /*relaxed=*/true);
      if (read_only.ok()) {
        registration = std::move(read_only);
        writable = false;
      }
    }
  } catch (const std::bad_alloc&) {
    // As where it is refused.
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!registration.ok()) {
    buffers_.erase(begin);
    return registration.status();
  }
  Buffer& buffer = buffers_[begin];
  buffer.writable = writable;
  buffer.registration = std::move(registration).value();
  buffer.ready = true;
  return Status::Ok();
}

Status RegisteredMemory::Deregister(void* memory) {
  return Remove(memory, /*allocated=*/false, "Deregister");
}

Status RegisteredMemory::Remove(void* memory, bool allocated,
                                const char* call) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto found = buffers_.find(static_cast<const std::byte*>(memory));
  if (found == buffers_.end() || !found->second.ready ||
      (found->second.memory.data() != nullptr) != allocated) {
    return {
        StatusCode::kInvalidArgument,
        std::string(call) + " of memory that " +
            (allocated ? "Allocate did not return" : "Register was not given") +
            ", or for the second time"};
  }
  auto removed = buffers_.extract(found);
  lock.unlock();
  Buffer& buffer = removed.mapped();
  Status released = buffer.registration.Release();
  if (released.ok()) {
    return released;
  }
  if (allocated) {
    buffer.memory.Keep();
  }
  return {StatusCode::kMemoryHeld,
          std::string(call) + ": the device did not let go of the memory" +
              (allocated ? "" : ", it must not be reused") + ": " +
              released.ToString()};
}

bool RegisteredMemory::Overlaps(const std::byte* begin,
                                std::size_t bytes) const {
  const auto after = buffers_.lower_bound(begin);
  if (after != buffers_.end() &&
      static_cast<std::size_t>(after->first - begin) < bytes) {
    return true;
  }
  if (after == buffers_.begin()) {
    return false;
  }
  const auto before = std::prev(after);
  return static_cast<std::size_t>(begin - before->first) < before->second.bytes;
}

std::optional<RegisteredMemory::Found> RegisteredMemory::Find(
    const void* address, std::size_t bytes) const {
  const auto* begin = static_cast<const std::byte*>(address);
  const std::lock_guard<std::mutex> lock(mutex_);
  auto it = buffers_.upper_bound(begin);
  if (it == buffers_.begin()) {
    return std::nullopt;
  }
  --it;
  const auto& [data, buffer] = *it;
  const std::size_t offset = begin - data;
  if (offset > buffer.bytes || bytes > buffer.bytes - offset) {
    return std::nullopt;
  }
  if (!buffer.ready) {
    return std::nullopt;
  }
  return Found{buffer.registration.lkeys(), buffer.writable};
}

}  // namespace ringpipe
