#include "pipeline/host/region.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/pages.h"

namespace ringpipe {
namespace {

Status NoMemory(const std::string& what, int error) {
  const char* const advice =
      error == EFBIG
          ? "; raise 'ulimit -f'"
          : "; give the host or the container more memory, or run fewer ranks "
            "on it";
  const Status status =
      ErrnoStatus(StatusCode::kResourceExhausted, what, error);
  return {status.code(), status.message() + advice};
}

}  // namespace

Region::Registry& Region::ProcessRegistry() {
  static Registry* const registry = new Registry;  // outlives other statics
  return *registry;
}

Region::Region(Role role, const FileIdentity& identity, FileDescriptor file,
               SharedMapping mapping, std::size_t header_bytes)
    : role_(role),
      identity_(identity),
      file_(std::move(file)),
      mapping_(std::move(mapping)),
      header_bytes_(header_bytes),
      limit_(header_bytes),
      ranges_(header_bytes, mapping_.bytes()) {}

Region::~Region() { ProcessRegistry().Forget(identity_); }

Result<std::shared_ptr<Region>> Region::Create(std::size_t header_bytes) {
  if (header_bytes > MostGrowthBytes()) {
    return Status(StatusCode::kInvalidArgument,
                  "a header of shared host memory cannot have " +
                      std::to_string(header_bytes) + " bytes");
  }
  header_bytes = RoundUp(header_bytes, kPageBytes);
  FileDescriptor file = CreateSharedFile("ringpipe-host", header_bytes);
  // No other rank may add a seal, after which this one could not grow it.
  if (!file || fcntl(file.get(), F_ADD_SEALS, F_SEAL_SEAL) != 0 ||
      (header_bytes > 0 && !AllocatePages(file, 0, header_bytes))) {
    return NoMemory(
        "cannot create the memory that this rank shares with "
        "others of its host (memfd)",
        errno);
  }
  return Map(Role::kOwner, std::move(file), header_bytes);
}

Result<std::shared_ptr<Region>> Region::Attach(FileDescriptor file,
                                               std::size_t header_bytes) {
  errno = 0;
  if (header_bytes > MostGrowthBytes() ||
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
  if (!identity) {
    return ErrnoStatus(StatusCode::kInternal, "fstat of shared host memory",
                       errno);
  }
  std::shared_ptr<Region> region = ProcessRegistry().Find(*identity);
  if (region == nullptr) {
    SharedMapping mapping(file, header_bytes + MostGrowthBytes(),
                          PROT_READ | PROT_WRITE,
                          SharedMapping::InChildren::kNo);
    if (mapping.data() == nullptr) {
      return ErrnoStatus(StatusCode::kResourceExhausted,
                         "cannot map shared host memory; raise 'ulimit -v', or "
                         "set vm.max_map_count higher",
                         errno);
    }
    region = ProcessRegistry().KeepFirst(
        *identity,
        std::shared_ptr<Region>(new Region(role, *identity, std::move(file),
                                           std::move(mapping), header_bytes)));
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
  std::optional<std::uint64_t> offset;
  {
    std::lock_guard lock(mutex_);
    offset = ranges_.Take(bytes);
  }
  const std::string what =
      "cannot allocate " + std::to_string(bytes) + " bytes of shared memory";
  if (!offset) {
    return bytes == 0 ? Status(StatusCode::kInvalidArgument, what)
                      : NoMemory(what + " (this rank may have " +
                                     std::to_string(mapping_.bytes() >> 20) +
                                     " MiB, and no gap is large enough)",
                                 ENOMEM);
  }
  const std::uint64_t length = RangeAllocator::RangeBytes(bytes);
  std::byte* const data = mapping_.data() + *offset;
  if (length >= kHugePageBytes) {
    madvise(data, length, MADV_HUGEPAGE);  // a wish, may fail
  }
  // Without the lock: to clear gigabytes takes long. The hole once more: a peer
  // may have written to the range after it was freed.
  FreePages(file_, *offset, length);
  if (!AllocatePages(file_, *offset, length)) {
    const Status failed = NoMemory(what, errno);
    std::lock_guard lock(mutex_);
    ranges_.Give(*offset, bytes);
    return failed;
  }
  RaiseLimit(*offset + length);
  ClearTakenBack(*offset, length);
  return data;
}

// These pages are this process's own: no hole in the file empties them.
void Region::ClearTakenBack(std::uint64_t offset, std::uint64_t length) {
  std::lock_guard lock(mutex_);
  for (auto page = taken_back_.lower_bound(offset);
       page != taken_back_.end() && *page < offset + length; ++page) {
    std::memset(mapping_.data() + *page, 0, kPageBytes);
  }
}

void Region::Free(std::byte* data, std::size_t bytes) {
  if (!mapping_.IsInThisProcess()) {
    return;  // The file is the parent's, who still uses it.
  }
  const std::uint64_t offset = data - mapping_.data();
  FreePages(file_, offset, RangeAllocator::RangeBytes(bytes));
  std::lock_guard lock(mutex_);
  ranges_.Give(offset, bytes);
}

Status Region::TakeBack(std::byte* data, std::size_t bytes) {
  const std::uint64_t offset = data - mapping_.data();
  const std::uint64_t end = RoundUp(offset + bytes, kPageBytes);
  std::lock_guard lock(mutex_);
  for (std::uint64_t page = offset / kPageBytes * kPageBytes; page < end;
       page += kPageBytes) {
    // Never twice: that would lose what was stored since.
    if (taken_back_.contains(page)) {
      continue;
    }
    RINGPIPE_RETURN_IF_ERROR(TakeBackPage(page));
    taken_back_.insert(page);
  }
  return Status::Ok();
}

// The same page, of which this process gets a copy when it next writes: there
// is no moment in which a store could be lost. (ThreadSanitizer takes libc's
// mmap for a write of all of it.)
Status Region::TakeBackPage(std::uint64_t offset) {
  std::byte* const page = mapping_.data() + offset;
  if (syscall(SYS_mmap, page, kPageBytes, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file_.get(),
              static_cast<off_t>(offset)) == -1) {
    return ErrnoStatus(StatusCode::kResourceExhausted,
                       "cannot take memory back from the ranks that it was "
                       "shared with (mmap)",
                       errno);
  }
  madvise(page, kPageBytes, MADV_DONTDUMP);
  madvise(page, kPageBytes, MADV_DONTFORK);
  // Writes the page, whatever it holds.
  std::atomic_ref<std::uint64_t> word(*reinterpret_cast<std::uint64_t*>(page));
  std::uint64_t value = word.load(std::memory_order_relaxed);
  while (!word.compare_exchange_weak(value, value)) {
  }
  return Status::Ok();
}

// What is not within the limit as it was last known.
std::byte* Region::AtEnd(std::uint64_t offset, std::uint64_t bytes) {
  // The owner always knows.
  const std::optional<std::uint64_t> now =
      role_ == Role::kPeer ? FileBytes(file_) : std::nullopt;
  if (!now) {
    return nullptr;
  }
  const std::uint64_t limit = std::min(*now, mapping_.bytes());
  if (bytes > limit || offset > limit - bytes) {
    return nullptr;
  }
  RaiseLimit(limit);
  return header() + offset;
}

void Region::RaiseLimit(std::uint64_t bytes) {
  std::uint64_t known = limit_.load(std::memory_order_relaxed);
  while (known < bytes && !limit_.compare_exchange_weak(
                              known, bytes, std::memory_order_relaxed)) {
  }
}

}  // namespace ringpipe
