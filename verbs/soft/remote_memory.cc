#include "verbs/soft/remote_memory.h"

#include <errno.h>
#include <string.h>

#include <algorithm>
#include <atomic>

#include "reduction/host_copy.h"
#include "verbs/soft/layout.h"

namespace ringpipe::verbs::soft {
namespace {

template <typename Word>
void StoreWord(std::byte* target, const std::byte* source) {
  Word word;
  memcpy(&word, source, sizeof word);
  std::atomic_ref<Word>(*reinterpret_cast<Word*>(target))
      .store(word, std::memory_order_release);
}

template <typename Word>
bool IsWord(const std::byte* target, std::uint64_t bytes) {
  return bytes == sizeof(Word) &&
         reinterpret_cast<std::uintptr_t>(target) % sizeof(Word) == 0;
}

CopyResult CopyPrivate(Direction direction, pid_t pid, RangeCursor& cursor,
                       const RemoteRange& range) {
  iovec local[kMaxSge];
  const int count = cursor.Slice(range.bytes, local);
  iovec remote = {reinterpret_cast<void*>(range.place.address), range.bytes};
  const ssize_t copied =
      direction == Direction::kToPeer
          ? process_vm_writev(pid, local, count, &remote, 1, 0)
          : process_vm_readv(pid, local, count, &remote, 1, 0);
  if (copied == static_cast<ssize_t>(range.bytes)) {
    return CopyResult::kDone;
  }
  if (copied >= 0 || errno == EFAULT || errno == ENOMEM) {
    return CopyResult::kFaulted;
  }
  return errno == ESRCH ? CopyResult::kGone : CopyResult::kForbidden;
}

}  // namespace

void CopyBytes(std::byte* target, const std::byte* source,
               std::uint64_t bytes) {
  if (IsWord<std::uint64_t>(target, bytes)) {
    StoreWord<std::uint64_t>(target, source);
  } else if (IsWord<std::uint32_t>(target, bytes)) {
    StoreWord<std::uint32_t>(target, source);
  } else {
    // A queue pair may be connected to itself: source and target may overlap.
    HostCopy(target, source, bytes);
  }
}

iovec RangeCursor::Next(std::uint64_t most) {
  while (offset_ == ranges_[index_].iov_len) {
    ++index_;
    offset_ = 0;
  }
  const iovec& range = ranges_[index_];
  const std::uint64_t bytes = std::min(most, range.iov_len - offset_);
  iovec piece = {static_cast<std::byte*>(range.iov_base) + offset_, bytes};
  offset_ += bytes;
  return piece;
}

void RangeCursor::Skip(std::uint64_t bytes) {
  while (bytes > 0) {
    bytes -= Next(bytes).iov_len;
  }
}

void RangeCursor::CopyTo(std::byte* target, std::uint64_t bytes) {
  while (bytes > 0) {
    const iovec piece = Next(bytes);
    CopyBytes(target, static_cast<const std::byte*>(piece.iov_base),
              piece.iov_len);
    target += piece.iov_len;
    bytes -= piece.iov_len;
  }
}

void RangeCursor::CopyFrom(const std::byte* source, std::uint64_t bytes) {
  while (bytes > 0) {
    const iovec piece = Next(bytes);
    CopyBytes(static_cast<std::byte*>(piece.iov_base), source, piece.iov_len);
    source += piece.iov_len;
    bytes -= piece.iov_len;
  }
}

int RangeCursor::Slice(std::uint64_t bytes, iovec* out) {
  int count = 0;
  for (; bytes > 0; ++count) {
    out[count] = Next(bytes);
    bytes -= out[count].iov_len;
  }
  return count;
}

std::byte* FindMapped(const PeerLink& link, const RemoteRange& range,
                      bool* sane) {
  *sane = true;
  if (range.place.offset != kPrivateMemory) {
    if (!link.same_process() &&
        !link.segment()->Maps(range.place.offset, range.bytes)) {
      return nullptr;  // more than can be mapped here, reached as if private
    }
    std::byte* mapped = link.segment()->At(range.place.offset, range.bytes);
    *sane = mapped != nullptr;
    return mapped;
  }
  return link.same_process() ? reinterpret_cast<std::byte*>(range.place.address)
                             : nullptr;
}

CopyResult CopyAcross(Direction direction, const PeerLink& link,
                      std::span<const iovec> local,
                      std::span<const RemoteRange> remote) {
  RangeCursor cursor(local);
  for (const RemoteRange& range : remote) {
    bool sane;
    std::byte* mapped = FindMapped(link, range, &sane);
    if (!sane) {
      return CopyResult::kFaulted;
    }
    if (mapped == nullptr) {
      const CopyResult result =
          CopyPrivate(direction, link.pid(), cursor, range);
      if (result != CopyResult::kDone) {
        return result;
      }
    } else if (direction == Direction::kToPeer) {
      cursor.CopyTo(mapped, range.bytes);
    } else {
      cursor.CopyFrom(mapped, range.bytes);
    }
  }
  return CopyResult::kDone;
}

}  // namespace ringpipe::verbs::soft
