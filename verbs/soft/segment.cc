#include "verbs/soft/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <new>
#include <string>
#include <utility>

namespace ringpipe::verbs::soft {
namespace {

// Of address space, not of memory: what one context can ever allocate; the
// second where address space is limited (ulimit -v), for every rank of the
// host.
constexpr std::uint64_t kMostData = std::uint64_t{32} << 30;
constexpr std::uint64_t kLimitedData = std::uint64_t{256} << 20;
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kHugePage = std::uint64_t{2} << 20;

constexpr std::uint64_t RoundUp(std::uint64_t value, std::uint64_t to) {
  return (value + to - 1) / to * to;
}

constexpr std::uint64_t kDataOffset = RoundUp(sizeof(SharedLayout), kHugePage);

std::uint64_t BytesToMap() {
  rlimit limit;
  const bool limited =
      getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return kDataOffset + (limited ? kLimitedData : kMostData);
}

// Large ranges are aligned so that the kernel may use huge pages for them.
std::uint64_t RangeBytes(std::size_t bytes) {
  return RoundUp(bytes, bytes >= kHugePage ? kHugePage : kPage);
}

// As ftruncate; but where a limit (ulimit -f) has the kernel send SIGXFSZ, it
// is an error.
bool SetSize(const FileDescriptor& file, std::uint64_t bytes) {
  rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) {
    errno = EFBIG;
    return false;
  }
  return ftruncate(file.get(), static_cast<off_t>(bytes)) == 0;
}

FileDescriptor CreateFile(const char* name, std::uint64_t bytes) {
  FileDescriptor file(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file && (!SetSize(file, bytes) ||
               fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0)) {
    file.Close();
  }
  return file;
}

// Whether to read the first `bytes` of a mapping of `file` can do no harm.
// Without the seal a peer could shrink the file under our feet: SIGBUS. So does
// a file of huge pages (hugetlbfs) when there are none left.
bool IsSafe(const FileDescriptor& file, std::uint64_t bytes) {
  struct stat info;
  struct statfs system;
  const int seals = fcntl(file.get(), F_GET_SEALS);
  return fstatfs(file.get(), &system) == 0 && system.f_type == TMPFS_MAGIC &&
         seals >= 0 && (seals & F_SEAL_SHRINK) != 0 &&
         fstat(file.get(), &info) == 0 &&
         info.st_size >= static_cast<off_t>(bytes);
}

// The file for those who may read it: from now on nobody can map it to write to
// it, who has not already. None, with errno, where that cannot be had.
FileDescriptor Seal(FileDescriptor file) {
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0) {
    return file;
  }
  // Before Linux 5.1: a descriptor that cannot write. It keeps out all but
  // those who could change its mode, which are this user's.
  const std::string path = "/proc/self/fd/" + std::to_string(file.get());
  FileDescriptor reading(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return fchmod(file.get(), S_IRUSR) == 0 ? std::move(reading)
                                          : FileDescriptor();
}

}  // namespace

Mapping::Mapping(const FileDescriptor& file, std::uint64_t bytes,
                 int protection)
    : bytes_(bytes) {
  void* const base = mmap(nullptr, bytes, protection,
                          MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  if (base != MAP_FAILED) {
    madvise(base, bytes, MADV_DONTDUMP);
    data_ = static_cast<std::byte*>(base);
  }
}

Mapping::~Mapping() {
  if (data_ != nullptr) {
    munmap(data_, bytes_);
  }
}

// The segments mapped in this process. It is the one piece of global state
// here, and it must be: two contexts of one process that are peers have to use
// the same mapping, or ThreadSanitizer cannot see that one thread's atomic
// store and the other's load are of the same word (and caches of the processor
// would be the only thing to tell). It holds no strong reference.
struct Segment::Registry {
  std::mutex mutex;
  std::map<Identity, std::weak_ptr<Segment>> segments;
};

Segment::Registry& Segment::ProcessRegistry() {
  static Registry* const registry = new Registry;  // outlives other statics
  return *registry;
}

std::optional<Segment::Identity> Segment::IdentityOf(
    const FileDescriptor& owned, const FileDescriptor& shared) {
  struct stat first, second;
  if (fstat(owned.get(), &first) != 0 || fstat(shared.get(), &second) != 0) {
    return std::nullopt;
  }
  return Identity{
      {{first.st_dev, first.st_ino}, {second.st_dev, second.st_ino}}};
}

Segment::Segment(const Identity& identity, Mapping owned, Mapping shared)
    : identity_(identity),
      owned_(std::move(owned)),
      shared_(std::move(shared)) {}

Segment::~Segment() {
  Registry& registry = ProcessRegistry();
  std::lock_guard lock(registry.mutex);
  auto entry = registry.segments.find(identity_);
  if (entry != registry.segments.end() && entry->second.expired()) {
    registry.segments.erase(entry);
  }
}

Result<std::shared_ptr<Segment>> Segment::Create() {
  FileDescriptor owned = CreateFile("ringpipe-soft-owned", sizeof(OwnedLayout));
  FileDescriptor shared = CreateFile("ringpipe-soft", kDataOffset);
  if (!owned || !shared) {
    return ErrnoStatus(StatusCode::kResourceExhausted,
                       "cannot create the shared memory of soft0", errno);
  }
  return Map(Role::kOwner, std::move(owned), std::move(shared));
}

Result<std::shared_ptr<Segment>> Segment::Attach(FileDescriptor owned,
                                                 FileDescriptor shared) {
  if (!IsSafe(owned, sizeof(OwnedLayout)) || !IsSafe(shared, kDataOffset)) {
    return Status(StatusCode::kInvalidArgument,
                  "a peer sent files that are no segment of soft0");
  }
  return Map(Role::kPeer, std::move(owned), std::move(shared));
}

Result<std::shared_ptr<Segment>> Segment::Map(Role role, FileDescriptor owned,
                                              FileDescriptor shared) {
  const std::optional<Identity> identity = IdentityOf(owned, shared);
  struct stat info;
  if (!identity || fstat(shared.get(), &info) != 0) {
    return ErrnoStatus(StatusCode::kInternal, "fstat of a segment", errno);
  }
  if (std::shared_ptr<Segment> known = FindMapped(*identity)) {
    return known;
  }
  Mapping owned_mapping(
      owned, sizeof(OwnedLayout),
      role == Role::kOwner ? PROT_READ | PROT_WRITE : PROT_READ);
  Mapping shared_mapping(shared, BytesToMap(), PROT_READ | PROT_WRITE);
  // A peer does not need it any more.
  FileDescriptor sealed =
      role == Role::kOwner ? Seal(std::move(owned)) : FileDescriptor();
  if (owned_mapping.data() == nullptr || shared_mapping.data() == nullptr ||
      (role == Role::kOwner && !sealed)) {
    return ErrnoStatus(StatusCode::kResourceExhausted,
                       "cannot map a segment of soft0", errno);
  }
  std::shared_ptr<Segment> segment(new Segment(
      *identity, std::move(owned_mapping), std::move(shared_mapping)));
  segment->owned_file_ = std::move(sealed);
  segment->shared_file_ = std::move(shared);
  segment->file_bytes_ = info.st_size;
  segment->end_ = info.st_size;
  return KeepFirst(*identity, segment);
}

std::shared_ptr<Segment> Segment::FindMapped(const Identity& identity) {
  Registry& registry = ProcessRegistry();
  std::lock_guard lock(registry.mutex);
  const auto known = registry.segments.find(identity);
  return known != registry.segments.end() ? known->second.lock() : nullptr;
}

// Two threads may have mapped the same one: what the first has is for both.
std::shared_ptr<Segment> Segment::KeepFirst(
    const Identity& identity, const std::shared_ptr<Segment>& segment) {
  Registry& registry = ProcessRegistry();
  std::lock_guard lock(registry.mutex);
  std::weak_ptr<Segment>& known = registry.segments[identity];
  if (std::shared_ptr<Segment> first = known.lock()) {
    return first;
  }
  known = segment;
  return segment;
}

void* Segment::Allocate(std::size_t bytes) {
  if (bytes == 0 || bytes > shared_.bytes()) {
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
    return shared_.data() + offset;
  }
  const std::uint64_t end = end_;
  const std::uint64_t offset = RoundUp(end, align);
  if (offset + need > shared_.bytes()) {
    errno = ENOMEM;
    return nullptr;
  }
  if (!SetSize(shared_file_, offset + need)) {
    return nullptr;
  }
  if (offset > end) {
    free_[end] = offset - end;
  }
  end_ = offset + need;
  if (align == kHugePage) {
    madvise(shared_.data() + offset, need, MADV_HUGEPAGE);  // a wish, may fail
  }
  return shared_.data() + offset;
}

void Segment::Free(void* address, std::size_t bytes) {
  std::uint64_t offset = static_cast<std::byte*>(address) - shared_.data();
  std::uint64_t length = RangeBytes(bytes);
  fallocate(shared_file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
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
  try {
    free_[offset] = length;
  } catch (const std::bad_alloc&) {
    // Address space that is not used again; its pages are given back.
  }
}

std::uint64_t Segment::OffsetOf(const void* address,
                                std::uint64_t bytes) const {
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  const auto base = reinterpret_cast<std::uintptr_t>(shared_.data());
  if (start < base + kDataOffset || start >= base + shared_.bytes() ||
      bytes > base + shared_.bytes() - start) {
    return kPrivateMemory;
  }
  return start - base;
}

std::byte* Segment::At(std::uint64_t offset, std::uint64_t bytes) {
  if (offset < kDataOffset || !Maps(offset, bytes)) {
    return nullptr;
  }
  if (offset + bytes > file_bytes_.load(std::memory_order_relaxed)) {
    struct stat info;
    if (fstat(shared_file_.get(), &info) != 0 ||
        offset + bytes > static_cast<std::uint64_t>(info.st_size)) {
      return nullptr;
    }
    file_bytes_.store(info.st_size, std::memory_order_relaxed);
  }
  return shared_.data() + offset;
}

}  // namespace ringpipe::verbs::soft
