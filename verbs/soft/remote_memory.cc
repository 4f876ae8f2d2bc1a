#include "verbs/soft/remote_memory.h"

#include <errno.h>
#include <string.h>

#include <algorithm>
#include <atomic>

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

CopyResult WritePrivate(pid_t pid, SourceCursor& source,
                        const RemoteRange& range) {
  iovec local[kMaxSge];
  const int count = source.Slice(range.bytes, local);
  iovec remote = {reinterpret_cast<void*>(range.address), range.bytes};
  const ssize_t written = process_vm_writev(pid, local, count, &remote, 1, 0);
  if (written == static_cast<ssize_t>(range.bytes)) {
    return CopyResult::kDone;
  }
  if (written >= 0 || errno == EFAULT || errno == ENOMEM) {
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
    memmove(target, source, bytes);
  }
}

iovec SourceCursor::Next(std::uint64_t most) {
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

void SourceCursor::Skip(std::uint64_t bytes) {
  while (bytes > 0) {
    bytes -= Next(bytes).iov_len;
  }
}

void SourceCursor::CopyTo(std::byte* target, std::uint64_t bytes) {
  while (bytes > 0) {
    const iovec piece = Next(bytes);
    CopyBytes(target, static_cast<const std::byte*>(piece.iov_base),
              piece.iov_len);
    target += piece.iov_len;
    bytes -= piece.iov_len;
  }
}

int SourceCursor::Slice(std::uint64_t bytes, iovec* out) {
  int count = 0;
  for (; bytes > 0; ++count) {
    out[count] = Next(bytes);
    bytes -= out[count].iov_len;
  }
  return count;
}

CopyResult CopyToPeer(const PeerLink& link, std::span<const iovec> source,
                      std::span<const RemoteRange> target) {
  SourceCursor cursor(source);
  for (const RemoteRange& range : target) {
    std::byte* mapped = nullptr;
    if (range.offset != kPrivateMemory) {
      mapped = link.segment()->At(range.offset, range.bytes);
      if (mapped == nullptr) {
        return CopyResult::kFaulted;
      }
    } else if (link.same_process()) {
      mapped = reinterpret_cast<std::byte*>(range.address);
    }
    if (mapped != nullptr) {
      cursor.CopyTo(mapped, range.bytes);
    } else if (const CopyResult result =
                   WritePrivate(link.pid(), cursor, range);
               result != CopyResult::kDone) {
      return result;
    }
  }
  return CopyResult::kDone;
}

}  // namespace ringpipe::verbs::soft
