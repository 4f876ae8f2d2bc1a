#include "validate/test_pattern.h"

namespace ringpipe::validate {
namespace {

// Odd, with as many ones as zeros: each word differs from its neighbours in
// half of its bits.
constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15;

std::uint64_t Mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

}  // namespace

std::uint64_t PatternSeed(int from, int to, std::uint64_t message) {
  return Mix(Mix(Mix(static_cast<std::uint64_t>(from) + 1) +
                 static_cast<std::uint64_t>(to) + 1) +
             message);
}

void FillPattern(void* memory, std::size_t bytes, std::uint64_t seed) {
  auto* const words = static_cast<std::uint64_t*>(memory);
  for (std::size_t i = 0; i < bytes / sizeof *words; ++i) {
    words[i] = seed + i * kStep;
  }
}

std::uint64_t CountWrongBytes(const void* memory, std::size_t bytes,
                              std::uint64_t seed) {
  const auto* const words = static_cast<const std::uint64_t*>(memory);
  std::uint64_t differs = 0;
  for (std::size_t i = 0; i < bytes / sizeof *words; ++i) {
    differs |= words[i] ^ (seed + i * kStep);
  }
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; differs != 0 && i < bytes / sizeof *words; ++i) {
    for (std::uint64_t bits = words[i] ^ (seed + i * kStep); bits != 0;
         bits >>= 8) {
      wrong += (bits & 0xFF) != 0 ? 1 : 0;
    }
  }
  return wrong;
}

}  // namespace ringpipe::validate
