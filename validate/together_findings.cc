#include "validate/analysis_parts.h"
#include "validate/format.h"

namespace ringpipe::validate {
namespace {

using Kind = Finding::Kind;

// A pattern or collective that gets less of what its links promise.
constexpr double kPoorPattern = 0.6;
constexpr double kPoorCollective = 2;

}  // namespace

std::optional<Finding> FindPoorPatterns(const Measurements& measured) {
  const Pattern* worst = nullptr;
  double least = kPoorPattern;
  std::size_t poor = 0;
  for (const Pattern& pattern : measured.patterns) {
    const double part = pattern.bytes_per_s / pattern.of_links_bytes_per_s;
    if (pattern.of_links_bytes_per_s > 0 && part < kPoorPattern &&
        !measured.OnOneHost()) {
      ++poor;
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
          ": the fabric is oversubscribed, or sending and receiving "
          "at once is slower than either");
}

std::vector<Finding> FindPoorCollectives(const Measurements& measured) {
  std::vector<Finding> findings;
  for (const CollectiveTime& time : measured.collectives) {
    if (time.predicted_s > 0 &&
        time.seconds > kPoorCollective * time.predicted_s &&
        !measured.OnOneHost()) {
      Finding finding = MakeFinding(
          Kind::kCollective, false,
          "an allreduce of " + WithCommas(time.bytes) + " bytes takes " +
              FormatTime(time.seconds) + " where its slowest link allows " +
              FormatTime(time.predicted_s));
      finding.weight = time.seconds / time.predicted_s;
      findings.push_back(std::move(finding));
    }
  }
  return findings;
}

}  // namespace ringpipe::validate
