#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "validate/analysis_parts.h"
#include "validate/format.h"

namespace ringpipe::validate {
namespace {

using Kind = Finding::Kind;

// A latency is worth a word from here on: it jumps with the number of switches.
constexpr double kSlow = 1.5;
constexpr double kVerySlow = 2.5;
constexpr double kShort = 1e-6;  // differences below say nothing
constexpr std::size_t kMostPairs = 8;

// The pairs of ranks of one kind, and how long a message takes between them.
struct Times {
  std::string where;     // "between hosts"
  bool by_host = false;  // of_rank: so that each other host counts as much
  // By rank, and by the host or rank at the other end.
  std::map<int, std::map<int, std::vector<double>>> of_rank;
  std::vector<std::pair<double, Link>> pairs;

  double usual() const {
    std::vector<double> all;
    for (const auto& [time, pair] : pairs) {
      all.push_back(time);
    }
    return Median(all);
  }
};

Times TimesOf(const Measurements& measured, bool between) {
  const std::vector<int> hosts = HostNumbers(measured);
  const std::set<int> all_hosts(hosts.begin(), hosts.end());
  Times times{between ? "between hosts" : "inside a host",
              between && all_hosts.size() > 2,
              {},
              {}};
  for (int a = 0; a < measured.size(); ++a) {
    for (int b = a + 1; b < measured.size(); ++b) {
      const double time = measured.latencies->median_s.at(a, b, 0);
      if (!std::isnan(time) && (hosts[a] != hosts[b]) == between) {
        times.of_rank[a][times.by_host ? hosts[b] : b].push_back(time);
        times.of_rank[b][times.by_host ? hosts[a] : a].push_back(time);
        times.pairs.push_back({time, {a, b}});
      }
    }
  }
  return times;
}

// How far, as a factor, the slowest of healthy pairs is from the usual time.
// The widths of both tails of the distribution are alike without faults.
double SpreadOf(const Times& times) {
  const double usual = times.usual();
  std::vector<double> distances;
  for (const auto& [time, pair] : times.pairs) {
    distances.push_back(std::fabs(std::log(time / usual)));
  }
  return std::exp(WorstOf(times.pairs.size()) * kDeviationOfMad *
                  Median(distances));
}

Finding Slow(const std::string& who, double time, double usual,
             const std::string& where) {
  Finding finding = MakeFinding(Kind::kLatency, false,
                                who + FormatTime(time) + " where " +
                                    FormatTime(usual) + " is usual " + where);
  finding.weight = time / usual;
  return finding;
}

// Ranks that are slow to most others.
void FindSlowRanks(const Measurements& measured, const Times& times,
                   std::set<int>& slow_ranks, std::vector<Finding>& findings) {
  const double usual = times.usual();
  const double spread = std::sqrt(SpreadOf(times));
  for (const auto& [rank, of_others] : times.of_rank) {
    std::size_t links = 0;
    std::vector<double> of_other;
    for (const auto& [other, values] : of_others) {
      links += values.size();
      of_other.push_back(Median(values));
    }
    // So long it takes to more than half of the others, or longer.
    std::sort(of_other.begin(), of_other.end());
    const double time = of_other[(of_other.size() - 1) / 2];
    if (time > usual * kSlow && time > usual + kShort && links > 2 &&
        time > usual * spread) {
      slow_ranks.insert(rank);
      Finding finding =
          Slow("host " + measured.NameOf(rank) + " answers after ", time, usual,
               times.where);
      finding.text += times.by_host ? ": to most of the other hosts"
                                    : ": to most of the other ranks";
      finding.host = measured.ranks[rank].host;
      findings.push_back(std::move(finding));
    }
  }
}

void FindSlowPairs(const Measurements& measured, Times times,
                   const std::set<int>& slow_ranks,
                   std::vector<Finding>& findings) {
  const double usual = times.usual();
  const double spread = SpreadOf(times);
  std::sort(times.pairs.rbegin(), times.pairs.rend());
  std::size_t named = 0;
  for (const auto& [time, pair] : times.pairs) {
    const auto& [a, b] = pair;
    if (named < kMostPairs && time > usual * kVerySlow &&
        time > usual + kShort && time > usual * spread &&
        !slow_ranks.contains(a) && !slow_ranks.contains(b)) {
      ++named;
      Finding finding =
          Slow(measured.NameOf(a) + " ↔ " + measured.NameOf(b) + " takes ",
               time, usual, times.where);
      finding.from = a;
      finding.to = b;
      findings.push_back(std::move(finding));
    }
  }
}

}  // namespace

std::vector<Finding> FindLongLatencies(const Measurements& measured) {
  std::vector<Finding> findings;
  if (!measured.latencies) {
    return findings;
  }
  for (const bool between : {true, false}) {
    const Times times = TimesOf(measured, between);
    if (times.pairs.size() >= kFewLinks) {
      std::set<int> slow_ranks;
      FindSlowRanks(measured, times, slow_ranks, findings);
      FindSlowPairs(measured, times, slow_ranks, findings);
    }
  }
  return findings;
}

}  // namespace ringpipe::validate
