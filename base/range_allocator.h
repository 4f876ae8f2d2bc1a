#ifndef RINGPIPE_BASE_RANGE_ALLOCATOR_H_
#define RINGPIPE_BASE_RANGE_ALLOCATOR_H_

#include <cstdint>
#include <map>
#include <optional>

namespace ringpipe {

// Gives out ranges of whole pages of a larger one, the lowest that is free
// first; large ones are aligned so that the kernel may use huge pages for them.
// It knows numbers only, not memory. Not thread-safe.
class RangeAllocator {
 public:
  // Of [begin, end), both multiples of a page.
  RangeAllocator(std::uint64_t begin, std::uint64_t end);

  // How long the range is that Take gives for `bytes`.
  static std::uint64_t RangeBytes(std::uint64_t bytes);

  // Where the range begins; nullopt where there is none, or `bytes` is 0.
  std::optional<std::uint64_t> Take(std::uint64_t bytes);
  // Takes the range back that Take gave for `bytes`. Where there is no memory
  // to note it, it is not given out again.
  void Give(std::uint64_t offset, std::uint64_t bytes) noexcept;

 private:
  using Ranges = std::map<std::uint64_t, std::uint64_t>;

  void Cut(Ranges::iterator range, std::uint64_t offset, std::uint64_t bytes);

  const std::uint64_t total_bytes_;
  Ranges free_;  // offset to bytes; no two of them touch
};

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_RANGE_ALLOCATOR_H_
