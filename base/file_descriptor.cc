#include "base/file_descriptor.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "base/hold_forks.h"

namespace ringpipe {
namespace {

// As many as a process can have, unless its administrator has raised
// fs.nr_open. A bit each, without a lock: another thread could hold that when
// this one forks.
constexpr int kMost = 1 << 20;
constexpr int kBits = 64;
constinit std::array<std::atomic<std::uint64_t>, kMost / kBits> kept = {};
constinit std::atomic<int> words_used = 0;

std::uint64_t BitOf(int fd) { return std::uint64_t{1} << (fd % kBits); }
bool IsCounted(int fd) { return fd >= 0 && fd < kMost; }

// In the child, which has one thread: async-signal-safe.
void CloseKept() {
  const int error = errno;
  for (int word = 0; word < words_used.load(); ++word) {
    const std::uint64_t bits = kept[word].exchange(0);
    for (int bit = 0; bit < kBits; ++bit) {
      if ((bits >> bit & 1) != 0) {
        close(word * kBits + bit);
      }
    }
  }
  errno = error;
}

[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, &CloseKept);

}  // namespace

void KeepFromChildren(int fd) {
  if (!IsCounted(fd)) {
    return;
  }
  kept[fd / kBits].fetch_or(BitOf(fd));
  int used = words_used.load();
  while (used <= fd / kBits &&
         !words_used.compare_exchange_weak(used, fd / kBits + 1)) {
  }
}

void FileDescriptor::Close() {
  if (fd_ < 0) {
    return;
  }
  const HoldForks held;
  if (StopKeeping(fd_)) {
    close(fd_);
  }
  fd_ = -1;
}

bool StopKeeping(int fd) {
  return IsCounted(fd)
             ? (kept[fd / kBits].fetch_and(~BitOf(fd)) & BitOf(fd)) != 0
             : fd >= 0;
}

}  // namespace ringpipe
