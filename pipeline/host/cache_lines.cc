#include "pipeline/host/cache_lines.h"

#include <cstdint>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

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

bool ClaimingPays() {
#if defined(__x86_64__)
  unsigned most = 0;
  unsigned name[3] = {};
  return __get_cpuid(0, &most, &name[0], &name[2], &name[1]) != 0 &&
         std::string_view(reinterpret_cast<const char*>(name), sizeof name) ==
             "AuthenticAMD";
#else
  return false;
#endif
}

}  // namespace ringpipe
