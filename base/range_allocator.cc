#include "base/range_allocator.h"

#include <iterator>
#include <new>
#include <utility>

#include "base/pages.h"

namespace ringpipe {

RangeAllocator::RangeAllocator(std::uint64_t begin, std::uint64_t end)
    : total_bytes_(end - begin) {
  if (end > begin) {
    free_[begin] = end - begin;
  }
}

std::uint64_t RangeAllocator::RangeBytes(std::uint64_t bytes) {
  return RoundUp(bytes, bytes >= kHugePageBytes ? kHugePageBytes : kPageBytes);
}

std::optional<std::uint64_t> RangeAllocator::Take(std::uint64_t bytes) {
  if (bytes == 0 || bytes > total_bytes_) {
    return std::nullopt;
  }
  const std::uint64_t need = RangeBytes(bytes);
  const std::uint64_t align =
      need >= kHugePageBytes ? kHugePageBytes : kPageBytes;
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    const std::uint64_t offset = RoundUp(range->first, align);
    if (offset + need <= range->first + range->second) {
      Cut(range, offset, need);
      return offset;
    }
  }
  return std::nullopt;
}

// What is left before and after [offset, offset + bytes) stays free. Where
// there is no memory for that, nothing has changed.
void RangeAllocator::Cut(Ranges::iterator range, std::uint64_t offset,
                         std::uint64_t bytes) {
  const std::uint64_t before = offset - range->first;
  const std::uint64_t after = range->second - before - bytes;
  if (before > 0) {
    if (after > 0) {
      free_.emplace_hint(std::next(range), offset + bytes, after);
    }
    range->second = before;
    return;
  }
  Ranges::node_type node = free_.extract(range);
  if (after > 0) {
    node.key() = offset + bytes;
    node.mapped() = after;
    free_.insert(std::move(node));
  }
}

void RangeAllocator::Give(std::uint64_t offset, std::uint64_t bytes) noexcept {
  std::uint64_t length = RangeBytes(bytes);
  auto next = free_.lower_bound(offset);
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += length;
      if (next != free_.end() &&
          before->first + before->second == next->first) {
        before->second += next->second;
        free_.erase(next);
      }
      return;
    }
  }
  if (next != free_.end() && next->first == offset + length) {
    Ranges::node_type node = free_.extract(next);
    node.key() = offset;
    node.mapped() += length;
    free_.insert(std::move(node));
    return;
  }
  try {
    free_.emplace_hint(next, offset, length);
  } catch (const std::bad_alloc&) {
    // Address space that is not used again.
  }
}

}  // namespace ringpipe
