#include "base/shared_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "base/hold_forks.h"
#include "base/memory_left.h"

namespace ringpipe {
namespace {

// What one call of fallocate is asked for at most. A signal makes it give up
// all that it has done, so that where a profiler sends one every millisecond it
// is asked for less.
constexpr std::uint64_t kPiece = std::uint64_t{4} << 20;
constexpr std::uint64_t kLeastPiece = 8192;

// False, with errno, where to make a file that long raises SIGXFSZ.
bool WithinSizeLimit(std::uint64_t bytes) {
  rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) {
    errno = EFBIG;
    return false;
  }
  return true;
}

// Of `bytes` at most; 0, with errno, where there is none.
std::uint64_t AllocatePiece(int file, std::uint64_t offset,
                            std::uint64_t bytes) {
  while (fallocate(file, 0, static_cast<off_t>(offset),
                   static_cast<off_t>(bytes)) != 0) {
    if (errno != EINTR) {
      return 0;
    }
    bytes = bytes > kLeastPiece ? bytes / 2 : bytes;
  }
  return bytes;
}

}  // namespace

FileDescriptor CreateSharedFile(const char* name, std::uint64_t bytes,
                                const char** failed) {
  const HoldForks held;
  FileDescriptor file(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const char* call = nullptr;
  if (!file) {
    call = "memfd_create";
  } else if (!SetFileBytes(file, bytes)) {
    call = "ftruncate";
  } else if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
    call = "fcntl, F_ADD_SEALS";
  }
  if (call != nullptr) {
    file.Close();
    if (failed != nullptr) {
      *failed = call;
    }
  }
  return file;
}

// Without the seal a peer could shrink the file under our feet: SIGBUS. So does
// a file of huge pages (hugetlbfs) when there are none left.
bool IsSharedFile(const FileDescriptor& file, std::uint64_t bytes) {
  struct statfs system;
  const int seals = fcntl(file.get(), F_GET_SEALS);
  return fstatfs(file.get(), &system) == 0 && system.f_type == TMPFS_MAGIC &&
         seals >= 0 && (seals & F_SEAL_SHRINK) != 0 &&
         FileBytes(file).value_or(0) >= bytes;
}

bool SetFileBytes(const FileDescriptor& file, std::uint64_t bytes) {
  return WithinSizeLimit(bytes) &&
         ftruncate(file.get(), static_cast<off_t>(bytes)) == 0;
}

std::optional<std::uint64_t> FileBytes(const FileDescriptor& file) {
  struct stat info;
  if (fstat(file.get(), &info) != 0) {
    return std::nullopt;
  }
  return static_cast<std::uint64_t>(info.st_size);
}

bool IsMemoryLeft(std::uint64_t bytes) {
  try {
    const std::optional<MemoryLeft> left = LookUpMemoryLeft();
    if (!left || bytes <= left->with_swap) {
      return true;
    }
  } catch (const std::bad_alloc&) {
    // Not even to look.
  }
  errno = ENOMEM;
  return false;
}

bool AllocatePages(const FileDescriptor& file, std::uint64_t offset,
                   std::uint64_t bytes) {
  if (!WithinSizeLimit(offset + bytes)) {
    return false;
  }
  for (std::uint64_t done = 0; done < bytes;) {
    // All of the rest, so that of several processes that allocate beside each
    // other one hears of it long before nothing is left.
    const std::uint64_t piece =
        IsMemoryLeft(bytes - done)
            ? AllocatePiece(file.get(), offset + done,
                            std::min(kPiece, bytes - done))
            : 0;
    if (piece == 0) {
      const int error = errno;
      FreePages(file, offset, done);
      errno = error;
      return false;
    }
    done += piece;
  }
  return true;
}

void FreePages(const FileDescriptor& file, std::uint64_t offset,
               std::uint64_t bytes) {
  fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(offset), static_cast<off_t>(bytes));
}

std::optional<FileIdentity> IdentityOf(const FileDescriptor& file) {
  struct stat info;
  if (fstat(file.get(), &info) != 0) {
    return std::nullopt;
  }
  return FileIdentity(info.st_dev, info.st_ino);
}

}  // namespace ringpipe
