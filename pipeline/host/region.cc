#include "pipeline/host/region.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/hold_forks.h"
#include "base/pages.h"

namespace ringpipe {
namespace {

// Of the file, beside the header: what is mapped from the beginning, and all.
constexpr std::uint64_t kNearBytes = std::uint64_t{256} << 20;
constexpr std::uint64_t kMostBytes = std::uint64_t{32} << 30;

// False, with errno. The file is as long as a limit (ulimit -f) allows.
bool SetLength(const FileDescriptor& file, std::uint64_t bytes) {
  rlimit limit;
  const bool limited = getrlimit(RLIMIT_FSIZE, &limit) == 0;
  return SetFileBytes(file, limited ? std::min(bytes, limit.rlim_cur) : bytes);
}

Status NoMemory(const std::string& what, int error) {
  Status status = ErrnoStatus(StatusCode::kResourceExhausted, what, error);
  if (status.code() != StatusCode::kResourceExhausted || error == EMFILE ||
      error == ENFILE) {
    return status;  // memory would not help
  }
  return {status.code(),
          status.message() +
              (error == EFBIG ? "; raise 'ulimit -f'"
                              : "; give the host or the container more memory, "
                                "or run fewer ranks on it")};
}

void RaiseTo(std::atomic<std::uint64_t>& limit, std::uint64_t bytes) {
  std::uint64_t known = limit.load(std::memory_order_relaxed);
  while (known < bytes && !limit.compare_exchange_weak(
                              known, bytes, std::memory_order_relaxed)) {
  }
}

}  // namespace

Region::Registry& Region::ProcessRegistry() {
  static Registry* const registry = new Registry;  // outlives other statics
  return *registry;
}

Region::Region(Role role, const FileIdentity& identity, FileDescriptor file,
               SharedMapping near, std::size_t header_bytes,
               std::uint64_t file_bytes)
    : identity_(identity),
      file_(role == Role::kOwner ? std::move(file) : FileDescriptor()),
      near_(std::move(near)),
      header_bytes_(header_bytes),
      limit_(role == Role::kOwner ? header_bytes
                                  : std::min(file_bytes, near_.bytes())),
      far_limit_(role == Role::kOwner
                     ? 0
                     : std::min(file_bytes, header_bytes + kMostBytes)),
      ranges_(header_bytes, near_.bytes()),
      far_ranges_(near_.bytes(), header_bytes + kMostBytes) {}

Region::~Region() { ProcessRegistry().Forget(identity_); }

Result<std::shared_ptr<Region>> Region::Create(std::size_t header_bytes) {
  if (header_bytes > kMostBytes) {
    return Status(StatusCode::kInvalidArgument,
                  "a header of shared host memory cannot have " +
                      std::to_string(header_bytes) + " bytes");
  }
  header_bytes = RoundUp(header_bytes, kPageBytes);
  const char* failed = nullptr;
  FileDescriptor file =
      CreateSharedFile("ringpipe-host", header_bytes, &failed);
  if (!file) {
    // What failed has said so.
  } else if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SEAL) != 0) {
    // No other rank may add a seal, after which this one could not grow it.
    failed = "fcntl, F_ADD_SEALS";
  } else if (header_bytes > 0 && !AllocatePages(file, 0, header_bytes)) {
    failed = "fallocate";
  } else if (!SetLength(file, header_bytes + kMostBytes)) {
    failed = "ftruncate";
  }
  if (failed != nullptr) {
    return NoMemory(
        "cannot create the memory that this rank shares with others of its "
        "host (" +
            std::string(failed) + ")",
        errno);
  }
  return Map(Role::kOwner, std::move(file), header_bytes);
}

Result<std::shared_ptr<Region>> Region::Attach(FileDescriptor file,
                                               std::size_t header_bytes) {
  errno = 0;
  if (header_bytes > kMostBytes ||
      !IsSharedFile(file, RoundUp(header_bytes, kPageBytes))) {
    const std::string what =
        "a peer sent a file that is no shared host memory, or is too short; do "
        "all ranks run the same version of ringpipe?";
    return errno == 0 ? Status(StatusCode::kInvalidArgument, what)
                      : ErrnoStatus(StatusCode::kInvalidArgument, what, errno);
  }
  return Map(Role::kPeer, std::move(file), RoundUp(header_bytes, kPageBytes));
}

Result<std::shared_ptr<Region>> Region::Map(Role role, FileDescriptor file,
                                            std::size_t header_bytes) {
  const std::optional<FileIdentity> identity = IdentityOf(file);
  const std::optional<std::uint64_t> file_bytes = FileBytes(file);
  if (!identity || !file_bytes) {
    return ErrnoStatus(StatusCode::kInternal, "fstat of shared host memory",
                       errno);
  }
  std::shared_ptr<Region> region = ProcessRegistry().Find(*identity);
  if (region == nullptr) {
    SharedMapping near(file, header_bytes + kNearBytes, PROT_READ | PROT_WRITE);
    if (near.data() == nullptr) {
      return ErrnoStatus(StatusCode::kResourceExhausted,
                         "cannot map shared host memory; raise 'ulimit -v', or "
                         "set vm.max_map_count higher",
                         errno);
    }
    region = ProcessRegistry().KeepFirst(
        *identity, std::shared_ptr<Region>(
                       new Region(role, *identity, std::move(file),
                                  std::move(near), header_bytes, *file_bytes)));
  }
  if (region->header_bytes() < header_bytes) {
    return Status(StatusCode::kInvalidArgument,
                  "shared host memory has a header of " +
                      std::to_string(region->header_bytes()) +
                      " bytes, where " + std::to_string(header_bytes) +
                      " were expected");
  }
  return region;
}

Result<std::byte*> Region::Allocate(std::size_t bytes) {
  const std::string what =
      "cannot allocate " + std::to_string(bytes) + " bytes of shared memory";
  std::optional<std::uint64_t> offset;
  {
    std::lock_guard lock(mutex_);
    offset = Take(bytes);
  }
  if (!offset) {
    return bytes == 0 ? Status(StatusCode::kInvalidArgument, what)
                      : NoMemory(what + " (this rank may have " +
                                     std::to_string(kMostBytes >> 20) +
                                     " MiB, and no gap is large enough, or "
                                     "'ulimit -v' too small)",
                                 ENOMEM);
  }
  const std::uint64_t length = RangeAllocator::RangeBytes(bytes);
  std::byte* const data = AddressOf(*offset);
  if (length >= kHugePageBytes) {
    madvise(data, length, MADV_HUGEPAGE);  // a wish, may fail
  }
  // Without the lock: to clear gigabytes takes long. The hole once more: a peer
  // may have written to the range after it was freed.
  FreePages(file_, *offset, length);
  if (!AllocatePages(file_, *offset, length)) {
    const int error = errno;
    {
      std::lock_guard lock(mutex_);
      Give(*offset, bytes);
    }
    return NoMemory(what + " (fallocate)", error);
  }
  RaiseTo(*offset < near_.bytes() ? limit_ : far_limit_, *offset + length);
  ClearTakenBack(*offset, length);
  return data;
}

// These pages are this process's own: no hole in the file empties them.
void Region::ClearTakenBack(std::uint64_t offset, std::uint64_t length) {
  std::lock_guard lock(mutex_);
  for (auto page = taken_back_.lower_bound(offset);
       page != taken_back_.end() && *page < offset + length; ++page) {
    std::memset(AddressOf(*page), 0, kPageBytes);
  }
}

void Region::Free(std::byte* data, std::size_t bytes) {
  if (!near_.IsInThisProcess()) {
    return;  // The file is the parent's, who still uses it.
  }
  const std::uint64_t offset = *OffsetOf(data, bytes);
  FreePages(file_, offset, RangeAllocator::RangeBytes(bytes));
  std::lock_guard lock(mutex_);
  Give(offset, bytes);
}

Status Region::TakeBack(std::byte* data, std::size_t bytes) {
  const std::uint64_t offset = *OffsetOf(data, bytes);
  const std::uint64_t end = RoundUp(offset + bytes, kPageBytes);
  std::lock_guard lock(mutex_);
  for (std::uint64_t page = offset / kPageBytes * kPageBytes; page < end;
       page += kPageBytes) {
    // Never twice: that would lose what was stored since. So a page is listed
    // before, while there may be no memory for that.
    const auto [listed, is_new] = taken_back_.insert(page);
    if (!is_new) {
      continue;
    }
    if (!TakeBackPage(page)) {
      const int error = errno;
      taken_back_.erase(listed);
      return ErrnoStatus(StatusCode::kResourceExhausted,
                         "cannot take memory back from the ranks that it was "
                         "shared with (mmap)",
                         error);
    }
  }
  return Status::Ok();
}

// The same page, of which this process gets a copy when it next writes: there
// is no moment in which a store could be lost. (ThreadSanitizer takes libc's
// mmap for a write of all of it.) False, with errno, where it stays as it was.
bool Region::TakeBackPage(std::uint64_t offset) {
  std::byte* const page = AddressOf(offset);
  const HoldForks held;
  if (syscall(SYS_mmap, page, kPageBytes, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file_.get(),
              static_cast<off_t>(offset)) == -1) {
    return false;
  }
  madvise(page, kPageBytes, MADV_DONTDUMP);
  madvise(page, kPageBytes, MADV_DONTFORK);
  // Writes the page, whatever it holds.
  std::atomic_ref<std::uint64_t> word(*reinterpret_cast<std::uint64_t*>(page));
  std::uint64_t value = word.load(std::memory_order_relaxed);
  while (!word.compare_exchange_weak(value, value)) {
  }
  return true;
}

// --- What is mapped when needed ----------------------------------------------

// Under mutex_.
bool Region::MapFar() {
  if (!far_) {
    SharedMapping all = near_.Again(header_bytes_ + kMostBytes);
    if (all.data() == nullptr) {
      return false;
    }
    far_.emplace(std::move(all));
    far_data_.store(far_->data(), std::memory_order_release);
  }
  return true;
}

// Under mutex_.
std::optional<std::uint64_t> Region::Take(std::size_t bytes) {
  std::optional<std::uint64_t> offset = ranges_.Take(bytes);
  if (offset || bytes == 0) {
    return offset;
  }
  offset = far_ranges_.Take(bytes);
  if (offset && !MapFar()) {
    far_ranges_.Give(*offset, bytes);
    return std::nullopt;
  }
  return offset;
}

void Region::Give(std::uint64_t offset, std::size_t bytes) {
  (offset < near_.bytes() ? ranges_ : far_ranges_).Give(offset, bytes);
}

std::byte* Region::AddressOf(std::uint64_t offset) const {
  return (offset < near_.bytes() ? near_.data()
                                 : far_data_.load(std::memory_order_acquire)) +
         offset;
}

std::optional<std::uint64_t> Region::FarOffsetOf(const void* data,
                                                 std::uint64_t bytes) const {
  const std::byte* const begin = far_data_.load(std::memory_order_acquire);
  const std::uint64_t offset = reinterpret_cast<std::uintptr_t>(data) -
                               reinterpret_cast<std::uintptr_t>(begin);
  const std::uint64_t limit = far_limit_.load(std::memory_order_relaxed);
  return begin != nullptr && offset >= near_.bytes() && bytes <= limit &&
                 offset <= limit - bytes
             ? std::optional(offset)
             : std::nullopt;
}

// Nothing is allocated across the end of near_.
std::byte* Region::FarAt(std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t limit = far_limit_.load(std::memory_order_relaxed);
  if (offset < near_.bytes() || bytes > limit || offset > limit - bytes) {
    return nullptr;
  }
  if (far_data_.load(std::memory_order_acquire) == nullptr) {
    std::lock_guard lock(mutex_);
    if (!MapFar()) {
      return nullptr;
    }
  }
  return AddressOf(offset);
}

}  // namespace ringpipe
