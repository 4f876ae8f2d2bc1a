#include "base/shared_mapping.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

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

}  // namespace

std::uint64_t MostGrowthBytes() {
  rlimit limit;
  const bool limited =
      getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return limited ? kLimitedGrowth : kMostGrowth;
}

SharedMapping::SharedMapping(const FileDescriptor& file, std::uint64_t bytes,
                             int protection, InChildren in_children)
    : bytes_(RoundUp(bytes, kPageBytes)) {
  std::byte* const place =
      bytes_ >= kHugePageBytes ? ReserveAligned(bytes_) : nullptr;
  if (bytes_ >= kHugePageBytes && place == nullptr) {
    return;
  }
  void* const base =
      mmap(place, bytes_, protection,
           MAP_SHARED | MAP_NORESERVE | (place != nullptr ? MAP_FIXED : 0),
           file.get(), 0);
  if (base == MAP_FAILED) {
    const int error = errno;
    if (place != nullptr) {
      munmap(place, bytes_);
    }
    errno = error;
    return;
  }
  madvise(base, bytes_, MADV_DONTDUMP);
  if (in_children == InChildren::kNo) {
    madvise(base, bytes_, MADV_DONTFORK);
    only_process_ = getpid();
  }
  data_ = static_cast<std::byte*>(base);
}

SharedMapping::~SharedMapping() {
  if (data_ != nullptr && IsInThisProcess()) {
    munmap(data_, bytes_);
  }
}

bool SharedMapping::IsInThisProcess() const {
  return only_process_ == 0 || only_process_ == getpid();
}

}  // namespace ringpipe
