#include "base/file_descriptor.h"

#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "base/hold_forks.h"

namespace ringpipe {
namespace {

// As many as a process can have, unless its administrator has raised
// fs.nr_open. By number: which file is kept; 0: none. Without a lock: another
// thread could hold that when this one forks. Of the array, a process uses no
// more pages than it has descriptors for.
constexpr int kMost = 1 << 20;
std::uint32_t kept_files[kMost];
std::atomic_ref<std::uint32_t> Kept(int fd) {
  return std::atomic_ref<std::uint32_t>(kept_files[fd]);
}
constinit std::atomic<int> numbers_used = 0;

bool IsCounted(int fd) { return fd >= 0 && fd < kMost; }

// In the child, which has one thread: async-signal-safe.
void CloseKept() {
  const int error = errno;
  for (int fd = 0; fd < numbers_used.load(); ++fd) {
    const std::uint32_t file = Kept(fd).exchange(0);
    if (file != 0 && FileOf(fd) == file) {
      close(fd);
    }
  }
  errno = error;
}

[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, &CloseKept);

}  // namespace

bool IsEvent(int fd) {
  struct stat file;
  const int error = errno;
  const bool is_open = fstat(fd, &file) == 0;
  errno = error;
  return is_open && (file.st_mode & S_IFMT) == 0;
}

std::uint32_t FileOf(int fd) {
  struct stat file;
  const int error = errno;
  const bool is_open = fd >= 0 && fstat(fd, &file) == 0;
  errno = error;
  if (!is_open) {
    return 0;
  }
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;  // 2^64 / phi
  return static_cast<std::uint32_t>(
             ((file.st_dev * kOdd ^ file.st_ino) * kOdd) >> 32) |
         1;
}

Status DescriptorsClosed() {
  return {StatusCode::kInternal,
          "descriptors of ringpipe's were closed by another part of this "
          "program (closefrom, close_range, a library that daemonizes): do "
          "that before you create a communicator, or spare the descriptors "
          "that are not yours"};
}

std::uint32_t KeepFromChildren(int fd) {
  const std::uint32_t file = FileOf(fd);
  if (!IsCounted(fd)) {
    return file;
  }
  Kept(fd).store(file);
  int used = numbers_used.load();
  while (used <= fd && !numbers_used.compare_exchange_weak(used, fd + 1)) {
  }
  return file;
}

void FileDescriptor::Close() {
  if (fd_ < 0) {
    return;
  }
  const HoldForks held;
  if (StopKeeping(fd_, file_)) {
    close(fd_);
  }
  fd_ = -1;
}

bool StopKeeping(int fd, std::uint32_t file) {
  if (IsCounted(fd) && !Kept(fd).compare_exchange_strong(file, 0)) {
    return false;
  }
  return file != 0 && FileOf(fd) == file;
}

}  // namespace ringpipe
