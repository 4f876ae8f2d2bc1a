#include "verbs/soft/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <utility>

#include "base/hold_forks.h"
#include "base/pages.h"

namespace ringpipe::verbs::soft {
namespace {

constexpr std::uint64_t kDataOffset =
    RoundUp(sizeof(SharedLayout), kHugePageBytes);

// The file for those who may read it: from now on nobody can map it to write to
// it, who has not already. None, with errno, where that cannot be had.
FileDescriptor Seal(FileDescriptor file) {
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0) {
    return file;
  }
  // Before Linux 5.1: a descriptor that cannot write. It keeps out all but
  // those who could change its mode, which are this user's.
  const std::string path = "/proc/self/fd/" + std::to_string(file.get());
  const HoldForks held;
  FileDescriptor reading(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return fchmod(file.get(), S_IRUSR) == 0 ? std::move(reading)
                                          : FileDescriptor();
}

}  // namespace

Segment::Registry& Segment::ProcessRegistry() {
  static Registry* const registry = new Registry;  // outlives other statics
  return *registry;
}

Segment::Segment(const Identity& identity, SharedMapping owned,
                 SharedMapping shared)
    : identity_(identity),
      owned_(std::move(owned)),
      shared_(std::move(shared)),
      ranges_(kDataOffset, shared_.bytes()) {}

Segment::~Segment() { ProcessRegistry().Forget(identity_); }

Result<std::shared_ptr<Segment>> Segment::Create() {
  const char* failed = nullptr;
  FileDescriptor owned =
      CreateSharedFile("ringpipe-soft-owned", sizeof(OwnedLayout), &failed);
  FileDescriptor shared;
  if (owned) {
    shared = CreateSharedFile("ringpipe-soft", kDataOffset, &failed);
  }
  if (failed != nullptr) {
    return ErrnoStatus(StatusCode::kResourceExhausted,
                       "cannot create the shared memory of soft0 (" +
                           std::string(failed) + ")",
                       errno);
  }
  return Map(Role::kOwner, std::move(owned), std::move(shared));
}

Result<std::shared_ptr<Segment>> Segment::Attach(FileDescriptor owned,
                                                 FileDescriptor shared) {
  if (!IsSharedFile(owned, sizeof(OwnedLayout)) ||
      !IsSharedFile(shared, kDataOffset)) {
    return Status(StatusCode::kInvalidArgument,
                  "a peer sent files that are no segment of soft0");
  }
  return Map(Role::kPeer, std::move(owned), std::move(shared));
}

Result<std::shared_ptr<Segment>> Segment::Map(Role role, FileDescriptor owned,
                                              FileDescriptor shared) {
  const std::optional<FileIdentity> first = IdentityOf(owned);
  const std::optional<FileIdentity> second = IdentityOf(shared);
  const std::optional<std::uint64_t> file_bytes = FileBytes(shared);
  if (!first || !second || !file_bytes) {
    return ErrnoStatus(StatusCode::kInternal, "fstat of a segment", errno);
  }
  const Identity identity(*first, *second);
  if (std::shared_ptr<Segment> known = ProcessRegistry().Find(identity)) {
    return known;
  }
  SharedMapping owned_mapping(
      owned, sizeof(OwnedLayout),
      role == Role::kOwner ? PROT_READ | PROT_WRITE : PROT_READ);
  SharedMapping shared_mapping(shared, kDataOffset + MostGrowthBytes(),
                               PROT_READ | PROT_WRITE);
  // A peer does not need it any more.
  FileDescriptor sealed =
      role == Role::kOwner ? Seal(std::move(owned)) : FileDescriptor();
  if (owned_mapping.data() == nullptr || shared_mapping.data() == nullptr ||
      (role == Role::kOwner && !sealed)) {
    return ErrnoStatus(StatusCode::kResourceExhausted,
                       "cannot map a segment of soft0", errno);
  }
  std::shared_ptr<Segment> segment(new Segment(
      identity, std::move(owned_mapping), std::move(shared_mapping)));
  segment->owned_file_ = std::move(sealed);
  segment->shared_file_ = std::move(shared);
  segment->file_bytes_ = *file_bytes;
  segment->grown_to_ = *file_bytes;
  return ProcessRegistry().KeepFirst(identity, segment);
}

void* Segment::Allocate(std::size_t bytes) {
  std::lock_guard lock(mutex_);
  const std::optional<std::uint64_t> offset = ranges_.Take(bytes);
  if (!offset) {
    errno = ENOMEM;
    return nullptr;
  }
  const std::uint64_t length = RangeAllocator::RangeBytes(bytes);
  if (!IsMemoryLeft(length)) {
    ranges_.Give(*offset, bytes);
    return nullptr;
  }
  if (*offset + length > grown_to_) {
    if (!SetFileBytes(shared_file_, *offset + length)) {
      ranges_.Give(*offset, bytes);
      return nullptr;
    }
    grown_to_ = *offset + length;
  }
  std::byte* const data = shared_.data() + *offset;
  if (length >= kHugePageBytes) {
    madvise(data, length, MADV_HUGEPAGE);  // a wish, may fail
  }
  return data;
}

void Segment::Free(void* address, std::size_t bytes) {
  if (!shared_.IsInThisProcess()) {
    return;
  }
  const std::uint64_t offset =
      static_cast<std::byte*>(address) - shared_.data();
  FreePages(shared_file_, offset, RangeAllocator::RangeBytes(bytes));
  std::lock_guard lock(mutex_);
  ranges_.Give(offset, bytes);
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
    const std::optional<std::uint64_t> now = FileBytes(shared_file_);
    if (!now || offset + bytes > *now) {
      return nullptr;
    }
    file_bytes_.store(*now, std::memory_order_relaxed);
  }
  return shared_.data() + offset;
}

}  // namespace ringpipe::verbs::soft
