#include "base/shared_mapping.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/hold_forks.h"
#include "base/pages.h"

namespace ringpipe {
namespace {

constexpr std::uint64_t kMostGrowth = std::uint64_t{32} << 30;
constexpr std::uint64_t kLimitedGrowth = std::uint64_t{256} << 20;

// Address space, not yet usable, at a multiple of a huge page; nullptr, with
// errno, where there is none. `bytes` is a multiple of a page.
std::byte* ReserveAligned(std::uint64_t bytes) {
  const std::uint64_t more = bytes + kHugePageBytes;
  void* const base = mmap(nullptr, more, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    return nullptr;
  }
  const auto address = reinterpret_cast<std::uintptr_t>(base);
  const std::uint64_t before = RoundUp(address, kHugePageBytes) - address;
  std::byte* const aligned = static_cast<std::byte*>(base) + before;
  if (before > 0) {
    munmap(base, before);
  }
  munmap(aligned + bytes, kHugePageBytes - before);  // never 0 bytes
  return aligned;
}

// What `map` returns, as mmap does, given the place for so much; nullptr:
// anywhere.
template <typename F>
void* MapAligned(std::uint64_t bytes, F map) {
  if (bytes < kHugePageBytes) {
    return map(nullptr);
  }
  std::byte* const place = ReserveAligned(bytes);
  if (place == nullptr) {
    return MAP_FAILED;
  }
  void* const base = map(place);
  if (base == MAP_FAILED) {
    const int error = errno;
    munmap(place, bytes);
    errno = error;
  }
  return base;
}

}  // namespace

std::uint64_t MostGrowthBytes() {
  rlimit limit;
  const bool limited =
      getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return limited ? kLimitedGrowth : kMostGrowth;
}

template <typename F>
SharedMapping SharedMapping::Map(std::uint64_t bytes, F map) {
  bytes = RoundUp(bytes, kPageBytes);
  SharedMapping mapping;
  const HoldForks held;
  void* const data =
      MapAligned(bytes, [&](void* place) { return map(place, bytes); });
  if (data != MAP_FAILED) {
    madvise(data, bytes, MADV_DONTDUMP);
    madvise(data, bytes, MADV_DONTFORK);
    mapping.data_ = static_cast<std::byte*>(data);
    mapping.bytes_ = bytes;
    mapping.process_ = getpid();
  }
  return mapping;
}

SharedMapping::SharedMapping(const FileDescriptor& file, std::uint64_t bytes,
                             int protection)
    : SharedMapping(Map(bytes, [&](void* place, std::uint64_t rounded) {
        return mmap(
            place, rounded, protection,
            MAP_SHARED | MAP_NORESERVE | (place != nullptr ? MAP_FIXED : 0),
            file.get(), 0);
      })) {}

// Of no bytes of a shared mapping mremap makes a second one.
SharedMapping SharedMapping::Again(std::uint64_t bytes) const {
  return Map(bytes, [&](void* place, std::uint64_t rounded) {
    return mremap(data_, 0, rounded,
                  MREMAP_MAYMOVE | (place != nullptr ? MREMAP_FIXED : 0),
                  place);
  });
}

SharedMapping::~SharedMapping() {
  if (data_ != nullptr && IsInThisProcess()) {
    munmap(data_, bytes_);
  }
}

bool SharedMapping::IsInThisProcess() const { return process_ == getpid(); }

}  // namespace ringpipe
