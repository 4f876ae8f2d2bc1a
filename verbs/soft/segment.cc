#include "verbs/soft/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include <utility>

namespace ringpipe::verbs::soft {
namespace {

// Of address space, not of memory: what one context can ever allocate.
constexpr std::uint64_t kMappedBytes = std::uint64_t{32} << 30;
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kHugePage = std::uint64_t{2} << 20;

constexpr std::uint64_t RoundUp(std::uint64_t value, std::uint64_t to) {
  return (value + to - 1) / to * to;
}

constexpr std::uint64_t kDataOffset = RoundUp(sizeof(SegmentLayout), kHugePage);
static_assert(kDataOffset < kMappedBytes);

// Large ranges are aligned so that the kernel may use huge pages for them.
std::uint64_t RangeBytes(std::size_t bytes) {
  return RoundUp(bytes, bytes >= kHugePage ? kHugePage : kPage);
}

using FileIdentity = std::pair<dev_t, ino_t>;

// The segments mapped in this process. It is the one piece of global state
// here, and it must be: two contexts of one process that are peers have to use
// the same mapping, or ThreadSanitizer cannot see that one thread's atomic
// store and the other's load are of the same word (and caches of the processor
// would be the only thing to tell). It holds no strong reference.
struct Registry {
  std::mutex mutex;
  std::map<FileIdentity, std::weak_ptr<Segment>> segments;
};

Registry& ProcessRegistry() {
  static Registry* const registry = new Registry;  // outlives other statics
  return *registry;
}

}  // namespace

Segment::Segment(FileDescriptor file, std::byte* base)
    : file_(std::move(file)), base_(base) {}

Segment::~Segment() {
  struct stat info;
  if (fstat(file_.get(), &info) == 0) {
    Registry& registry = ProcessRegistry();
    std::lock_guard lock(registry.mutex);
    auto entry = registry.segments.find({info.st_dev, info.st_ino});
    if (entry != registry.segments.end() && entry->second.expired()) {
      registry.segments.erase(entry);
    }
  }
  munmap(base_, kMappedBytes);
}

Result<std::shared_ptr<Segment>> Segment::Create() {
  FileDescriptor file(
      memfd_create("ringpipe-soft", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file || ftruncate(file.get(), kDataOffset) != 0 ||
      fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
    return ErrnoStatus(StatusCode::kResourceExhausted,
                       "cannot create the shared memory of soft0", errno);
  }
  return Map(std::move(file));
}

Result<std::shared_ptr<Segment>> Segment::Attach(FileDescriptor file) {
  struct stat info;
  struct statfs system;
  const int seals = fcntl(file.get(), F_GET_SEALS);
  // Without the seal the peer could shrink the file under our feet: SIGBUS. So
  // does a file of huge pages (hugetlbfs) when there are none left.
  if (fstatfs(file.get(), &system) != 0 || system.f_type != TMPFS_MAGIC ||
      seals < 0 || (seals & F_SEAL_SHRINK) == 0 ||
      fstat(file.get(), &info) != 0 ||
      info.st_size < static_cast<off_t>(kDataOffset)) {
    return Status(StatusCode::kInvalidArgument,
                  "a peer sent a file that is no segment of soft0");
  }
  return Map(std::move(file));
}

Result<std::shared_ptr<Segment>> Segment::Map(FileDescriptor file) {
  struct stat info;
  if (fstat(file.get(), &info) != 0) {
    return ErrnoStatus(StatusCode::kInternal, "fstat of a segment", errno);
  }
  Registry& registry = ProcessRegistry();
  std::lock_guard lock(registry.mutex);
  auto& known = registry.segments[{info.st_dev, info.st_ino}];
  if (std::shared_ptr<Segment> segment = known.lock()) {
    return segment;
  }
  void* base = mmap(nullptr, kMappedBytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  if (base == MAP_FAILED) {
    return ErrnoStatus(StatusCode::kResourceExhausted,
                       "cannot map a segment of soft0", errno);
  }
  madvise(base, kMappedBytes, MADV_DONTDUMP);
  std::shared_ptr<Segment> segment(
      new Segment(std::move(file), static_cast<std::byte*>(base)));
  segment->file_bytes_ = info.st_size;
  segment->end_ = info.st_size;
  known = segment;
  return segment;
}

void* Segment::Allocate(std::size_t bytes) {
  if (bytes == 0 || bytes > kMappedBytes) {
    return nullptr;
  }
  const std::uint64_t need = RangeBytes(bytes);
  const std::uint64_t align = need >= kHugePage ? kHugePage : kPage;
  std::lock_guard lock(mutex_);
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    const auto [start, length] = *range;
    const std::uint64_t offset = RoundUp(start, align);
    if (offset + need > start + length) {
      continue;
    }
    free_.erase(range);
    if (offset > start) {
      free_[start] = offset - start;
    }
    if (offset + need < start + length) {
      free_[offset + need] = start + length - offset - need;
    }
    return base_ + offset;
  }
  const std::uint64_t end = end_;
  const std::uint64_t offset = RoundUp(end, align);
  if (offset + need > kMappedBytes ||
      ftruncate(file_.get(), static_cast<off_t>(offset + need)) != 0) {
    errno = ENOMEM;
    return nullptr;
  }
  if (offset > end) {
    free_[end] = offset - end;
  }
  end_ = offset + need;
  if (align == kHugePage) {
    madvise(base_ + offset, need, MADV_HUGEPAGE);  // a wish, may fail
  }
  return base_ + offset;
}

void Segment::Free(void* address, std::size_t bytes) {
  std::uint64_t offset = static_cast<std::byte*>(address) - base_;
  std::uint64_t length = RangeBytes(bytes);
  fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(offset), static_cast<off_t>(length));
  std::lock_guard lock(mutex_);
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + length) {
    length += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += length;
      return;
    }
  }
  free_[offset] = length;
}

std::uint64_t Segment::OffsetOf(const void* address,
                                std::uint64_t bytes) const {
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  const auto base = reinterpret_cast<std::uintptr_t>(base_);
  if (start < base + kDataOffset || start >= base + kMappedBytes ||
      bytes > base + kMappedBytes - start) {
    return kPrivateMemory;
  }
  return start - base;
}

std::byte* Segment::At(std::uint64_t offset, std::uint64_t bytes) {
  if (offset < kDataOffset || offset > kMappedBytes ||
      bytes > kMappedBytes - offset) {
    return nullptr;
  }
  if (offset + bytes > file_bytes_.load(std::memory_order_relaxed)) {
    struct stat info;
    if (fstat(file_.get(), &info) != 0 ||
        offset + bytes > static_cast<std::uint64_t>(info.st_size)) {
      return nullptr;
    }
    file_bytes_.store(info.st_size, std::memory_order_relaxed);
  }
  return base_ + offset;
}

}  // namespace ringpipe::verbs::soft
