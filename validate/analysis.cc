#include "validate/analysis.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "validate/analysis_parts.h"
#include "validate/format.h"
#include "validate/port_findings.h"

namespace ringpipe::validate {
namespace {

using Kind = Finding::Kind;

// Of a test that did not come to its end: a fault where one host is to blame.
std::optional<Finding> FindEnding(const Measurements& measured) {
  if (!measured.ending || measured.ending->message.empty()) {
    return std::nullopt;
  }
  const Ending& ending = *measured.ending;
  const bool known = ending.lost_rank >= 0;
  const std::string host =
      known ? measured.ranks[ending.lost_rank].host : std::string();
  const std::string name =
      known && measured.OnOneHost() ? measured.NameOf(ending.lost_rank) : host;
  Finding finding = MakeFinding(
      known ? Kind::kLost : Kind::kOther, known,
      (known ? "host " + name + " was lost" : "the test ended") + " while " +
          ending.phase + " was measured: " + ending.message);
  finding.host = host;
  return finding;
}

// Of hosts without which it went on.
std::vector<Finding> FindLost(const Measurements& measured) {
  std::vector<Finding> findings;
  for (const Lost& lost : measured.lost) {
    findings.push_back(MakeFinding(
        Kind::kLost, true,
        "host " + lost.host + " was lost while " + lost.phase +
            " was measured, which went on without it: " + lost.message));
    findings.back().host = lost.host;
  }
  return findings;
}

std::vector<Finding> FindWrongBytes(const Measurements& measured) {
  std::vector<Finding> findings;
  if (!measured.stress) {
    return findings;
  }
  for (const Stress::Wrong& wrong : measured.stress->wrong) {
    Finding finding = MakeFinding(
        Kind::kWrongBytes, true,
        measured.NameOf(wrong.from) + " → " + measured.NameOf(wrong.to) + ": " +
            Count(wrong.messages, "message") + " arrived with wrong bytes, " +
            WithCommas(wrong.bytes) +
            " of them: memory, card or driver at one end");
    finding.from = wrong.from;
    finding.to = wrong.to;
    finding.weight = static_cast<double>(wrong.bytes);
    findings.push_back(std::move(finding));
  }
  return findings;
}

// Kept of all links: the slowest of a plane.
void AddRanked(int plane, const LinkClasses& classes,
               const IsolatedRatios& isolated,
               std::vector<RankedLink>& slowest) {
  std::vector<RankedLink> links;
  for (const LinkClass& members : classes.classes()) {
    for (const auto& [from, to] : members.links) {
      links.push_back({plane, from, to, classes.Value(from, to),
                       classes.Ratio(from, to), isolated.Value({from, to})});
    }
  }
  const std::size_t shown = std::min(links.size(), kRankedLinks);
  std::partial_sort(links.begin(), links.begin() + shown, links.end(),
                    [](const RankedLink& a, const RankedLink& b) {
                      return a.ratio < b.ratio;
                    });
  slowest.insert(slowest.end(), links.begin(), links.begin() + shown);
}

// As something that `findings` have already.
bool IsNamed(const std::vector<Finding>& findings, const Finding& finding) {
  return !finding.subject.empty() &&
         std::any_of(findings.begin(), findings.end(),
                     [&](const Finding& other) {
                       return other.kind == finding.kind &&
                              other.plane == finding.plane &&
                              other.subject == finding.subject;
                     });
}

// "not all links were measured (12 of 56)"
std::string WhatWasNot(const Measurements& measured, std::size_t links) {
  const auto all = static_cast<std::size_t>(measured.size()) *
                   static_cast<std::size_t>(std::max(0, measured.size() - 1));
  return all == 0      ? "one rank has no link: nothing was measured"
         : links < all ? "not all links were measured (" + WithCommas(links) +
                             " of " + WithCommas(all) +
                             "): nothing wrong was seen in those that were"
                       : "";
}

bool Has(const Analysis& analysis, Kind kind) {
  return std::any_of(
      analysis.findings.begin(), analysis.findings.end(),
      [kind](const Finding& finding) { return finding.kind == kind; });
}

// Of links whose doubt is the verdict's: not of a pair inside a host, nor of
// ranks that share cores.
bool IsDoubt(const Measurements& measured, const Finding& finding) {
  if (finding.kind != Kind::kUnverified || finding.links.empty()) {
    return finding.kind == Kind::kUnverified;
  }
  return std::any_of(finding.links.begin(), finding.links.end(),
                     [&](const Link& link) {
                       return !measured.OnOneHost(link.first, link.second) ||
                              (!finding.host.empty() &&
                               !measured.IsOversubscribed(link.first));
                     });
}

bool HasDoubt(const Measurements& measured, const Analysis& analysis) {
  return std::any_of(analysis.findings.begin(), analysis.findings.end(),
                     [&measured](const Finding& finding) {
                       return IsDoubt(measured, finding);
                     });
}

// Whether links that are in doubt were not measured alone. On a busy host it
// would be of no use.
bool WouldIsolating(const Measurements& measured, const Analysis& analysis) {
  std::set<std::tuple<int, int, int>> alone;
  for (const Isolated& link : measured.isolated) {
    alone.emplace(link.plane, link.from, link.to);
  }
  const auto any_is_left = [&](int plane, const std::vector<Link>& links) {
    return !measured.IsOtherWay(plane) &&
           std::any_of(links.begin(), links.end(), [&](const Link& link) {
             return !alone.contains({plane, link.first, link.second});
           });
  };
  if (Has(analysis, Kind::kBusy)) {
    return false;
  }
  if (HasDoubt(measured, analysis)) {
    return std::any_of(analysis.findings.begin(), analysis.findings.end(),
                       [&](const Finding& finding) {
                         return IsDoubt(measured, finding) &&
                                any_is_left(finding.plane, finding.links);
                       });
  }
  const std::vector<LinkClass>& classes = analysis.planes.front().classes;
  return std::any_of(
      classes.begin(), classes.end(),
      [&](const LinkClass& members) { return any_is_left(0, members.links); });
}

// What would make it certain.
std::string WhyUncertain(const Measurements& measured,
                         const Analysis& analysis) {
  return (HasDoubt(measured, analysis)
              ? std::string("some links are slow, and noise may be why")
          : Has(analysis, Kind::kBusy)
              ? std::string("hosts are busy with other work")
              : "noise hides a link that loses up to " +
                    FormatPercent(analysis.could_tell)) +
         "; run it again while the hosts and the network are idle" +
         (WouldIsolating(measured, analysis) ? ", or with --isolated" : "");
}

// Whether noise may hide what is wrong. Of memory, which is never quiet, it
// takes a rank that may be slow.
bool IsUncertain(const Measurements& measured, const Analysis& analysis) {
  return HasDoubt(measured, analysis) ||
         (!measured.OnOneHost() &&
          analysis.could_tell > kMostCouldTell * analysis.tolerance);
}

void Conclude(const Measurements& measured, Analysis& analysis) {
  const std::size_t faults =
      std::count_if(analysis.findings.begin(), analysis.findings.end(),
                    [](const Finding& finding) { return finding.fault; });
  std::size_t links = 0;
  if (!analysis.planes.empty()) {
    for (const LinkClass& members : analysis.planes.front().classes) {
      links += members.links.size();
    }
  }
  if (HasDoubt(measured, analysis) || Has(analysis, Kind::kBusy)) {
    analysis.could_tell = 1;
  }
  const std::string missing = WhatWasNot(measured, links);
  if (faults > 0) {
    analysis.verdict = Verdict::kFaulty;
    analysis.summary =
        Count(faults, "thing") + (faults == 1 ? " is" : " are") + " wrong";
  } else if (!missing.empty()) {
    analysis.verdict = Verdict::kNotMeasured;
    analysis.summary = missing;
  } else if (measured.ending) {
    analysis.verdict = Verdict::kUncertain;
    analysis.summary =
        "it ended early, while " + measured.ending->phase + " was measured: " +
        (HasDoubt(measured, analysis) ? "what is slow was not verified"
                                      : "nothing wrong was seen until then") +
        "; run it again to its end";
  } else if (Has(analysis, Kind::kUnmatched)) {
    analysis.verdict = Verdict::kUncertain;
    analysis.summary =
        "not all was compared with the baseline; give a baseline of these "
        "hosts";
  } else if (IsUncertain(measured, analysis)) {
    analysis.verdict = Verdict::kUncertain;
    analysis.summary = WhyUncertain(measured, analysis);
  } else {
    analysis.verdict = Verdict::kHealthy;
    analysis.summary = "all " + Count(links, "link") + " do what they should";
  }
}

class Analyzer {
 public:
  Analyzer(const Measurements& measurements, const AnalysisOptions& options,
           const Measurements* baseline)
      : measured_(measurements), options_(options), baseline_(baseline) {}

  Analysis Run() {
    analysis_.tolerance = options_.tolerance;
    analysis_.could_tell = options_.tolerance;
    Add(FindEnding(measured_));
    Add(FindLost(measured_));
    Add(FindWrongBytes(measured_));
    for (std::size_t plane = 0; plane < measured_.planes.size(); ++plane) {
      AnalyzePlane(static_cast<int>(plane));
    }
    Add(FindMissingRails(measured_));
    Add(FindSlowRails(measured_, options_.tolerance));
    DropConsequences(measured_, options_.tolerance, analysis_.findings);
    if (baseline_ != nullptr) {
      std::vector<Finding> changes =
          FindChanges(measured_, *baseline_, options_.tolerance);
      std::erase_if(changes, [this](const Finding& change) {
        return IsNamed(analysis_.findings, change);
      });
      Add(std::move(changes));
    }
    Add(FindPortFaults(measured_.ports));
    Add(FindBusyHosts(busy_));
    for (auto find : {&FindDisturbedHosts, &FindLateHosts}) {
      std::vector<Finding> findings = find(measured_);
      std::erase_if(findings, [this](const Finding& finding) {
        return waited_.contains(finding.host);
      });
      AddUnlessSlow(std::move(findings));
    }
    AddUnlessSlow(FindLossyHosts(measured_));
    if (!options_.expect_bytes_per_s && !Has(analysis_, Kind::kSlowRail)) {
      Add(FindBelowPorts(measured_, analysis_));
    }
    Add(FindLongLatencies(measured_));
    Add(FindPoorPatterns(measured_));
    SortFindings(analysis_.findings);
    MergeByPort(measured_, analysis_.findings);
    Conclude(measured_, analysis_);
    return std::move(analysis_);
  }

 private:
  void Add(std::optional<Finding> finding) {
    if (finding) {
      analysis_.findings.push_back(*std::move(finding));
    }
  }
  void Add(std::vector<Finding> findings) {
    std::move(findings.begin(), findings.end(),
              std::back_inserter(analysis_.findings));
  }

  // Of a host that is slow, these are consequences.
  void AddUnlessSlow(std::vector<Finding> of_hosts) {
    std::erase_if(of_hosts, [this](const Finding& finding) {
      return std::any_of(analysis_.findings.begin(), analysis_.findings.end(),
                         [&finding](const Finding& other) {
                           return other.fault && other.plane >= 0 &&
                                  other.host == finding.host;
                         });
    });
    Add(std::move(of_hosts));
  }

  void AnalyzePlane(int plane) {
    const LinkClasses classes(measured_, plane);
    if (classes.classes().empty()) {
      return;
    }
    if (!measured_.IsOtherWay(plane)) {
      Add(FindBelowExpected(measured_, plane, classes, options_,
                            baseline_ != nullptr));
    }
    const IsolatedRatios isolated(measured_, plane, classes,
                                  options_.tolerance);
    busy_.merge(BusyHosts(measured_, plane, isolated.most_queued()));
    waited_.merge(BusyHosts(measured_, plane, kMuchQueued));
    Add(FindSlowLinks(measured_, plane, classes, isolated, busy_,
                      options_.tolerance));
    AddRanked(plane, classes, isolated, analysis_.slowest);
    PlaneClasses of_plane = {
        measured_.planes[plane].name, classes.classes(), {}};
    for (const LinkClass& members : classes.classes()) {
      of_plane.could_tell.push_back(
          std::min(members.Resolution(options_.tolerance),
                   isolated.Resolution(members.links, options_.tolerance)));
      if (!measured_.IsOtherWay(plane) && classes.Decides(members)) {
        analysis_.could_tell =
            std::max(analysis_.could_tell, of_plane.could_tell.back());
      }
    }
    analysis_.planes.push_back(std::move(of_plane));
  }

  const Measurements& measured_;
  const AnalysisOptions options_;
  const Measurements* const baseline_;
  std::set<std::string> busy_;    // so that links of theirs are in doubt
  std::set<std::string> waited_;  // so that single messages were late
  Analysis analysis_;
};

}  // namespace

int ExitStatus(Verdict verdict) {
  return verdict == Verdict::kUncertain
             ? static_cast<int>(Verdict::kNotMeasured)
             : static_cast<int>(verdict);
}

Analysis Analyze(const Measurements& measurements,
                 const AnalysisOptions& options, const Measurements* baseline) {
  return Analyzer(measurements, options, baseline).Run();
}

}  // namespace ringpipe::validate
