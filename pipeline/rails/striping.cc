#include "pipeline/rails/striping.h"

#include <algorithm>
#include <numeric>

namespace ringpipe {
namespace {

constexpr std::uint64_t kMostOften = 16;

// How often each rail occurs.
std::vector<std::uint64_t> Occurrences(std::span<const std::uint32_t> speeds) {
  const std::uint64_t fastest = std::max<std::uint64_t>(
      1, *std::max_element(speeds.begin(), speeds.end()));
  std::vector<std::uint64_t> counts;
  std::uint64_t divisor = kMostOften;  // the fastest's
  for (const std::uint64_t speed : speeds) {
    counts.push_back(std::max<std::uint64_t>(
        1, (speed * kMostOften + fastest / 2) / fastest));
    divisor = std::gcd(divisor, counts.back());
  }
  for (std::uint64_t& count : counts) {
    count /= divisor;
  }
  return counts;
}

}  // namespace

// Smooth weighted round robin: each turn, every rail gains its weight, the one
// that has the most takes the turn and pays the sum of all weights.
std::vector<std::uint8_t> StripePattern(std::span<const std::uint32_t> speeds) {
  const std::vector<std::uint64_t> counts = Occurrences(speeds);
  const auto turns = static_cast<std::int64_t>(
      std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}));
  std::vector<std::int64_t> balance(counts.size(), 0);
  std::vector<std::uint8_t> pattern;
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    for (std::size_t rail = 0; rail < counts.size(); ++rail) {
      balance[rail] += static_cast<std::int64_t>(counts[rail]);
    }
    const auto most = std::max_element(balance.begin(), balance.end());
    *most -= turns;
    pattern.push_back(static_cast<std::uint8_t>(most - balance.begin()));
  }
  return pattern;
}

}  // namespace ringpipe
