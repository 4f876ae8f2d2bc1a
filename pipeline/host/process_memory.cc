#include "pipeline/host/process_memory.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>

#include "base/file_descriptor.h"
#include "base/pages.h"

namespace ringpipe {
namespace {

// Of linux/fs.h since Linux 6.7; older headers do not have it.
struct PageRegion {
  std::uint64_t start;
  std::uint64_t end;
  std::uint64_t categories;
};
struct PagemapScan {
  std::uint64_t size;
  std::uint64_t flags;
  std::uint64_t start;
  std::uint64_t end;
  std::uint64_t walk_end;
  std::uint64_t regions;
  std::uint64_t regions_count;
  std::uint64_t max_pages;
  std::uint64_t category_inverted;
  std::uint64_t category_mask;
  std::uint64_t category_anyof_mask;
  std::uint64_t return_mask;
};
constexpr std::uint64_t kPageIsHuge = 1 << 6;
constexpr unsigned long kPagemapScan = _IOWR('f', 16, PagemapScan);

}  // namespace

bool ProcessMemory::is_dead() const {
  pollfd process = {pidfd_, POLLIN, 0};
  return pidfd_ >= 0 && poll(&process, 1, 0) == 1;
}

bool ProcessMemory::Read(std::byte* to, std::uint64_t address,
                         std::size_t bytes) const {
  const iovec local = {to, bytes};
  const iovec remote = {reinterpret_cast<void*>(address), bytes};
  return !is_dead() && process_vm_readv(pid_, &local, 1, &remote, 1, 0) ==
                           static_cast<ssize_t>(bytes);
}

bool ProcessMemory::Write(std::uint64_t address, const std::byte* from,
                          std::size_t bytes) const {
  const iovec local = {const_cast<std::byte*>(from), bytes};
  const iovec remote = {reinterpret_cast<void*>(address), bytes};
  return !is_dead() && process_vm_writev(pid_, &local, 1, &remote, 1, 0) ==
                           static_cast<ssize_t>(bytes);
}

bool HasHugePages(const void* data, std::size_t bytes) {
  // In the middle, where the pages are like most of them.
  constexpr std::uint64_t kLookedAt = 4 * kHugePageBytes;
  const FileDescriptor pagemap(
      open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  PagemapScan scan = {};
  scan.size = sizeof scan;
  scan.start = RoundUp(begin + bytes / 2, kHugePageBytes);
  scan.end = std::min<std::uint64_t>(scan.start + kLookedAt,
                                     (begin + bytes) / kPageBytes * kPageBytes);
  if (scan.end <= scan.start) {
    return false;
  }
  std::array<PageRegion, 8> regions = {};
  scan.regions = reinterpret_cast<std::uintptr_t>(regions.data());
  scan.regions_count = regions.size();
  scan.category_mask = kPageIsHuge;
  scan.return_mask = kPageIsHuge;
  const int found = ioctl(pagemap.get(), kPagemapScan, &scan);
  std::uint64_t huge = 0;
  for (int i = 0; i < found; ++i) {
    huge += regions[i].end - regions[i].start;
  }
  return 4 * huge >= 3 * (scan.end - scan.start);
}

}  // namespace ringpipe
