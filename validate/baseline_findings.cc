#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "validate/analysis_parts.h"
#include "validate/format.h"
#include "validate/named_ranks.h"
#include "validate/part_sentences.h"

namespace ringpipe::validate {
namespace {

using Kind = Finding::Kind;

// By rank of `now`, which rank of `then` it was: the first of a host the first.
// -1: its host was not there, or had fewer.
std::vector<int> RanksThen(const Measurements& now, const Measurements& then) {
  std::map<std::string, std::vector<int>> of_host;
  for (int rank = then.size(); rank-- > 0;) {
    of_host[then.ranks[rank].host].push_back(rank);
  }
  std::vector<int> matches;
  for (const Rank& rank : now.ranks) {
    std::vector<int>& left = of_host[rank.host];
    matches.push_back(left.empty() ? -1 : left.back());
    if (!left.empty()) {
      left.pop_back();
    }
  }
  return matches;
}

// `then` as if it had the ranks of `now`.
Measurements InOrderOf(const Measurements& now, const Measurements& then,
                       const std::vector<int>& matches) {
  Measurements ordered = then;
  ordered.ranks = now.ranks;
  for (Plane& plane : ordered.planes) {
    const LinkSamples samples =
        std::exchange(plane.bytes_per_s,
                      LinkSamples(now.size(), plane.bytes_per_s.repeats()));
    for (int from = 0; from < now.size(); ++from) {
      for (int to = 0; to < now.size(); ++to) {
        for (int repeat = 0; matches[from] >= 0 && matches[to] >= 0 &&
                             repeat < samples.repeats();
             ++repeat) {
          plane.bytes_per_s.at(from, to, repeat) =
              samples.at(matches[from], matches[to], repeat);
        }
      }
    }
  }
  return ordered;
}

// Each link, and each port, of now beside itself of then.
class Comparison {
 public:
  Comparison(const Measurements& now, Measurements then, double tolerance)
      : now_(now), then_(std::move(then)), tolerance_(tolerance) {}

  std::vector<Finding> Run() {
    for (std::size_t plane = 0; plane < now_.planes.size(); ++plane) {
      for (const Plane& then : then_.planes) {
        // A host that is slow another way is in the first plane, too, or is
        // found without a baseline.
        if (then.name == now_.planes[plane].name &&
            !now_.IsOtherWay(static_cast<int>(plane))) {
          ComparePlane(static_cast<int>(plane), then);
        }
      }
    }
    ComparePorts();
    return std::move(findings_);
  }

 private:
  // The ratios of then and now have noise of both. They are written as samples
  // of a plane, and looked at as bandwidths are.
  void ComparePlane(int plane, const Plane& then) {
    const Plane& now = now_.planes[plane];
    const int ranks = now_.size();
    Plane ratios = now;
    ratios.bytes_per_s = LinkSamples(ranks, 1);
    std::vector<double> all;
    for (int from = 0; from < ranks; ++from) {
      for (int to = 0; to < ranks; ++to) {
        const double ratio = now.bytes_per_s.RateOf(from, to) /
                             then.bytes_per_s.RateOf(from, to);
        if (from != to && std::isfinite(ratio)) {
          ratios.bytes_per_s.at(from, to, 0) = static_cast<float>(ratio);
          all.push_back(ratio);
        }
      }
    }
    if (all.empty()) {
      return;
    }
    if (const double usual = Median(all); usual < 1 - tolerance_) {
      Finding finding =
          MakeFinding(Kind::kSlowerThanThen, true,
                      now.name + ": the links carry " + FormatPercent(usual) +
                          " of what they did on " + then_.date);
      finding.plane = plane;
      findings_.push_back(std::move(finding));
    }
    AddChanges(plane, ratios, then);
  }

  void AddChanges(int plane, const Plane& ratios, const Plane& then) {
    // Where all links have changed, that is said once.
    LinkClasses classes(now_, ratios);
    for (std::size_t i = 0; i < classes.classes().size(); ++i) {
      classes.SetReference(i, std::min(1.0, classes.classes()[i].reference));
    }
    const LinkClasses rates_now(now_, now_.planes[plane]);
    const LinkClasses rates_then(then_, then);
    const Measurements none;
    const IsolatedRatios alone(none, plane, classes, tolerance_);
    for (const SlowPart& part : ExplainSlowLinks(classes, alone, tolerance_)) {
      if (part.kind >= SlowPart::Kind::kContention) {
        continue;
      }
      std::vector<double> rate_now, rate_then;
      for (const auto& [from, to] : part.links) {
        rate_now.push_back(rates_now.Value(from, to));
        rate_then.push_back(rates_then.Value(from, to));
      }
      Finding finding = DescribePart(now_, plane, part, tolerance_);
      finding.links = part.links;
      finding.text = PartSubject(now_, plane, part) + " is down to " +
                     FormatRate(Median(rate_now)) + " from " +
                     FormatRate(Median(rate_then)) + " on " + then_.date;
      findings_.push_back(std::move(finding));
    }
  }

  void ComparePorts() {
    for (const Port& then : then_.ports) {
      const auto now = std::find_if(
          now_.ports.begin(), now_.ports.end(), [&then](const Port& port) {
            return port.host == then.host && port.Name() == then.Name();
          });
      const bool takes_part = std::any_of(
          now_.ranks.begin(), now_.ranks.end(),
          [&then](const Rank& rank) { return rank.host == then.host; });
      if (!takes_part) {
        continue;
      }
      const bool gone = now == now_.ports.end();
      if (!gone && now->rate == then.rate && now->state == then.state) {
        continue;
      }
      const bool worse = gone || now->state != "ACTIVE" ||
                         now->gigabits_per_s < then.gigabits_per_s;
      Finding finding = MakeFinding(
          Kind::kPort, worse,
          "host " + then.host + ": port " + then.Name() + " is " +
              (gone ? "gone" : now->state + " at " + now->rate) + "; on " +
              then_.date + " it was " + then.state + " at " + then.rate);
      finding.host = then.host;
      finding.port = then.Name();
      findings_.push_back(std::move(finding));
    }
  }

  const Measurements& now_;
  const Measurements then_;
  const double tolerance_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> FindChanges(const Measurements& measured,
                                 const Measurements& baseline,
                                 double tolerance) {
  const std::vector<int> matches = RanksThen(measured, baseline);
  std::set<int> unknown;
  for (int rank = 0; rank < measured.size(); ++rank) {
    if (matches[rank] < 0) {
      unknown.insert(rank);
    }
  }
  if (measured.ranks.size() - unknown.size() < 2) {
    return {MakeFinding(Kind::kUnmatched, false,
                        "the baseline is of other hosts: nothing is compared "
                        "with it")};
  }
  std::vector<Finding> findings =
      Comparison(measured, InOrderOf(measured, baseline, matches), tolerance)
          .Run();
  if (!unknown.empty()) {
    const std::set<std::string> hosts = HostsOf(measured, unknown);
    findings.push_back(MakeFinding(
        Kind::kUnmatched, false,
        "the baseline lacks " + Count(unknown.size(), "rank") +
            " of this run, on host " + *hosts.begin() +
            (hosts.size() > 1 ? " and " + Count(hosts.size() - 1, "other")
                              : "") +
            ": with these nothing is compared"));
  }
  return findings;
}

}  // namespace ringpipe::validate
