#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <limits>
#include <mutex>
#include <new>
#include <utility>

#include "verbs/device.h"

namespace ringpipe::verbs {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

std::size_t RoundUp(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Anonymous memory at an address that is a multiple of a huge page; nullptr,
// with errno, where there is none. Unmapped by munmap(address, bytes).
std::byte* MapHugeAligned(std::size_t bytes) {
  // mmap aligns to small pages only: take more, give the ends back.
  const std::size_t span = bytes + kHugePageBytes;
  void* mapped = mmap(nullptr, span, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    return nullptr;
  }
  auto* start = static_cast<std::byte*>(mapped);
  const auto address = reinterpret_cast<std::uintptr_t>(start);
  const std::size_t before = RoundUp(address, kHugePageBytes) - address;
  const std::size_t after = span - before - bytes;
  if (before > 0) {
    munmap(start, before);
  }
  if (after > 0) {
    munmap(start + before + bytes, after);
  }
  // Advice: where huge pages are switched off, small ones do.
  madvise(start + before, bytes, MADV_HUGEPAGE);
  return start + before;
}

// `bytes` is a multiple of the page size.
std::byte* MapPages(std::size_t bytes) {
  if (bytes >= kHugePageBytes) {
    return MapHugeAligned(bytes);
  }
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped);
}

}  // namespace

Result<Allocation> Device::Allocate(std::size_t bytes) {
  const auto page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::string what = "allocating " + std::to_string(bytes) + " bytes";
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) {
    return CallFailed(what, ENOMEM);
  }
  bytes = RoundUp(bytes == 0 ? 1 : bytes, page_bytes);
  errno = 0;
  std::byte* data =
      library_->allocate != nullptr
          ? static_cast<std::byte*>(library_->allocate(context_, bytes))
          : MapPages(bytes);
  if (data == nullptr) {
    return CallFailed(what, errno != 0 ? errno : ENOMEM);
  }
  if (library_->allocate == nullptr && info_.pins_memory) {
    // After a fork the first of two processes to write to a page gets a copy of
    // it: this one must keep the page that the device has pinned.
    madvise(data, bytes, MADV_DONTFORK);
  }
  return Allocation(shared_from_this(), data, bytes);
}

void Device::Free(std::byte* data, std::size_t bytes) noexcept {
  if (library_->allocate != nullptr) {
    library_->free(context_, data, bytes);
  } else {
    munmap(data, bytes);
  }
}

void Device::Keep(std::byte* data, std::size_t bytes) noexcept {
  if (library_->allocate != nullptr) {
    return;  // it ends with the library's context
  }
  const std::lock_guard lock(kept_mutex_);
  try {
    kept_.emplace_back(data, bytes);
  } catch (const std::bad_alloc&) {
    // Nobody ever gets it.
  }
}

}  // namespace ringpipe::verbs
