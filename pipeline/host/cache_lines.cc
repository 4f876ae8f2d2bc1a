#include "pipeline/host/cache_lines.h"

#include <cstdint>

namespace ringpipe {

void ClaimLines([[maybe_unused]] std::byte* data,
                [[maybe_unused]] std::size_t bytes) {
#if !defined(__SANITIZE_THREAD__)  // to which it is a write
  constexpr std::size_t kLine = 64;
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  // Where a message lies is of the peer's choice.
  const std::size_t first =
      (kWord - reinterpret_cast<std::uintptr_t>(data) % kWord) % kWord;
  for (std::size_t at = first; at + kWord <= bytes; at += kLine) {
    auto* const word = reinterpret_cast<volatile std::uint64_t*>(data + at);
    *word = *word;
  }
#endif
}

}  // namespace ringpipe
