#include "validate/analysis_parts.h"
#include "validate/format.h"

namespace ringpipe::validate {
namespace {

using Kind = Finding::Kind;

// A pattern that gets less of what its links promise.
constexpr double kPoorPattern = 0.6;

}  // namespace

std::optional<Finding> FindPoorPatterns(const Measurements& measured) {
  const Pattern* worst = nullptr;
  double least = kPoorPattern;
  std::size_t poor = 0;
  bool ring_is_poor = false;
  for (const Pattern& pattern : measured.patterns) {
    const double part = pattern.bytes_per_s / pattern.of_links_bytes_per_s;
    if (pattern.of_links_bytes_per_s > 0 && part < kPoorPattern &&
        !measured.OnOneHost()) {
      ++poor;
      ring_is_poor |= pattern.kind == "ring";
      if (part < least) {
        least = part;
        worst = &pattern;
      }
    }
  }
  if (worst == nullptr) {
    return std::nullopt;
  }
  return MakeFinding(
      Kind::kPattern, false,
      worst->kind + " (" + worst->name + ") carries " +
          FormatRate(worst->bytes_per_s) + " in all, " + FormatPercent(least) +
          " of what its slowest link would allow" +
          (poor > 1 ? ", and " + Count(poor - 1, "other pattern") + " as little"
                    : std::string()) +
          (ring_is_poor
               ? ": sending and receiving at once is slower than either"
               : ": the fabric is oversubscribed"));
}

}  // namespace ringpipe::validate
