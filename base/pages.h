// The processor's pages.
#ifndef RINGPIPE_BASE_PAGES_H_
#define RINGPIPE_BASE_PAGES_H_

#include <cstdint>

namespace ringpipe {

inline constexpr std::uint64_t kPageBytes = 4096;
inline constexpr std::uint64_t kHugePageBytes = std::uint64_t{2} << 20;

// The next multiple of `to`.
constexpr std::uint64_t RoundUp(std::uint64_t value, std::uint64_t to) {
  return (value + to - 1) / to * to;
}

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_PAGES_H_
