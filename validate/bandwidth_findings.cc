#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "validate/analysis_parts.h"
#include "validate/format.h"
#include "validate/part_sentences.h"

namespace ringpipe::validate {
namespace {

using Kind = Finding::Kind;

constexpr std::size_t kMostSingles = 50;

// What the links that are in use at once carry together. Of many links those
// that are slower than the others are found otherwise.
double Carried(const LinkClass& members) {
  return (members.few() ? members.min : members.reference) * members.load;
}

std::optional<Finding> ExpectOf(int plane, const LinkClass& members,
                                double expected, double tolerance) {
  const double carried = Carried(members);
  if (carried >= expected * (1 - tolerance)) {
    return std::nullopt;
  }
  const std::string links = "the links " + members.name;
  Finding finding = MakeFinding(
      Kind::kBelowExpected, true,
      (members.few() ? "the slowest of " + links + " carries "
                     : links + " carry ") +
          FormatRate(carried) + (members.load > 1 ? " together" : "") +
          " where " + FormatRate(expected) + " is expected");
  finding.plane = plane;
  return finding;
}

std::string RailName(const Measurements& measured, int plane) {
  const auto rail = static_cast<std::size_t>(measured.planes[plane].rail);
  const std::vector<std::string>& rails = measured.ranks.front().rails;
  return rail < rails.size() ? rails[rail] : "?";
}

struct RailRate {
  int plane = 0;
  double bytes_per_s = 0;
  // Of its ports, which is the same on all hosts; 0: it is not, or not known.
  double nominal_bytes_per_s = 0;
};

// By host and name of a port.
using PortRates = std::map<std::pair<std::string, std::string>, double>;

PortRates NominalRates(const std::vector<Port>& ports) {
  PortRates rates;
  for (const Port& port : ports) {
    rates[{port.host, port.Name()}] = port.gigabits_per_s * 1e9 / 8;
  }
  return rates;
}

double NominalRate(const std::vector<Rank>& ranks, const PortRates& rates,
                   std::size_t rail) {
  double nominal = 0;
  for (const Rank& rank : ranks) {
    if (rail >= rank.rails.size()) {
      return 0;
    }
    const auto port = rates.find({rank.host, rank.rails[rail]});
    if (port == rates.end() || !(port->second > 0) ||
        (nominal > 0 && port->second != nominal)) {
      return 0;
    }
    nominal = port->second;
  }
  return nominal;
}

std::vector<RailRate> RatesOfRails(const Measurements& measured) {
  const PortRates nominal = NominalRates(measured.ports);
  std::vector<RailRate> rails;
  for (std::size_t plane = 0; plane < measured.planes.size(); ++plane) {
    const int rail = measured.planes[plane].rail;
    if (rail < 0) {
      continue;
    }
    const LinkClasses classes(measured, static_cast<int>(plane));
    std::vector<double> references;
    for (const LinkClass& members : classes.classes()) {
      if (members.between && members.owner < 0) {
        references.push_back(members.reference);
      }
    }
    if (!references.empty()) {
      rails.push_back({static_cast<int>(plane), Median(references),
                       NominalRate(measured.ranks, nominal,
                                   static_cast<std::size_t>(rail))});
    }
  }
  return rails;
}

// Whether some rails are slower than others by design.
bool HaveUnlikePorts(const std::vector<RailRate>& rails) {
  const auto is_known = [](const RailRate& rail) {
    return rail.nominal_bytes_per_s > 0;
  };
  const auto is_like_the_first = [&rails](const RailRate& rail) {
    return rail.nominal_bytes_per_s == rails.front().nominal_bytes_per_s;
  };
  return std::all_of(rails.begin(), rails.end(), is_known) &&
         !std::all_of(rails.begin(), rails.end(), is_like_the_first);
}

bool IsSingle(const SlowPart& part) {
  return part.kind == SlowPart::Kind::kLink ||
         part.kind == SlowPart::Kind::kLinkBoth;
}

// Whether the test ended before all that was to be verified of the plane was.
bool WasCutShort(const Measurements& measured, int plane) {
  const bool is_rail = measured.planes[plane].rail >= 0;
  const bool went_on = !measured.patterns.empty() || measured.stress;
  return measured.ending && plane + 1 == std::ssize(measured.planes) &&
         (is_rail || !went_on);
}

// Whether what was measured alone can tell the part from noise, and the test
// did not end before it was all measured.
bool IsVerified(const SlowPart& part, const IsolatedRatios& isolated,
                bool cut_short) {
  const std::size_t links = IsSingle(part) ? 1 : 2;
  return cut_short
             ? isolated.HasControls() && isolated.CountOf(part.links) >= links
             : isolated.count() > 0;
}

// Where no link is measured alone, hosts as a whole are all that counts, and of
// several ranks of a host one with so many links.
bool IsWhole(const SlowPart& part, const LinkClasses& classes) {
  if (part.kind > SlowPart::Kind::kReceives || part.inside) {
    return false;
  }
  const std::vector<int>& hosts = classes.hosts();
  return part.level != SlowPart::Level::kRank ||
         std::count(hosts.begin(), hosts.end(), hosts[part.unit]) == 1 ||
         part.links.size() >=
             kFewLinks * std::max<std::size_t>(1, part.units.size());
}

// Another way is not repeated alone: it takes twice the tolerance. And buffers
// take short messages at once, which is no rate of a link: what links carry by
// the first way is enough.
bool IsFarBelow(const SlowPart& part, const LinkClasses& first,
                double tolerance) {
  std::vector<double> enough;
  for (const auto& [from, to] : part.links) {
    if (first.Measured(from, to)) {
      enough.push_back(first.Of(from, to).reference);
    }
  }
  return part.bytes_per_s <
         (1 - 2 * tolerance) * std::fmin(part.reference, Median(enough));
}

// Where there is something that it may be instead, it is no fault.
void Doubt(bool cut_short, const std::set<std::string>& busy,
           Finding& finding) {
  const bool is_busy =
      finding.host.empty() ? !busy.empty() : busy.contains(finding.host);
  if (cut_short || is_busy) {
    finding.fault = false;
    finding.kind = Kind::kUnverified;
    finding.text += cut_short ? "; the test ended before this was verified"
                              : "; other work on the host may be why";
  }
}

// A host that is slow one way is slow both ways, and with short messages.
void DropOtherWays(const Measurements& measured,
                   std::vector<Finding>& findings) {
  const std::vector<Finding> all = findings;
  const auto concerns = [&](const Finding& other, const std::string& host) {
    return host.empty() || other.host == host ||
           (other.host.empty() &&
            std::any_of(other.links.begin(), other.links.end(),
                        [&](const Link& link) {
                          return measured.ranks[link.first].host == host ||
                                 measured.ranks[link.second].host == host;
                        }));
  };
  std::erase_if(findings, [&](const Finding& finding) {
    return finding.plane >= 0 && measured.IsOtherWay(finding.plane) &&
           std::any_of(all.begin(), all.end(), [&](const Finding& other) {
             return other.fault && other.plane >= 0 &&
                    other.plane < finding.plane &&
                    concerns(other, finding.host);
           });
  });
}

}  // namespace

std::vector<Finding> FindBelowExpected(const Measurements& measured, int plane,
                                       const LinkClasses& classes,
                                       const AnalysisOptions& options,
                                       bool has_baseline) {
  std::vector<Finding> findings;
  const bool on_one_host = measured.OnOneHost();
  std::size_t judged = 0;
  // A rank may have a port of its own, so that it takes several to fill their
  // host's: those links count that carry the most together.
  const LinkClass* most = nullptr;
  for (const LinkClass& members : classes.classes()) {
    judged += members.few() ? 0 : 1;
    if ((members.between || on_one_host) &&
        (most == nullptr || Carried(members) > Carried(*most))) {
      most = &members;
    }
  }
  // What is expected, all rails carry together.
  if (options.expect_bytes_per_s && most != nullptr &&
      measured.planes[plane].rail < 0) {
    ++judged;
    if (auto finding = ExpectOf(plane, *most, *options.expect_bytes_per_s,
                                options.tolerance)) {
      findings.push_back(*std::move(finding));
    }
  }
  if (judged == 0 && !has_baseline && plane == 0) {
    findings.push_back(
        MakeFinding(Kind::kFewLinks, false,
                    "there are too few links of a kind to tell which is wrong: "
                    "they are only compared with each other; give --expect or "
                    "--baseline"));
  }
  return findings;
}

std::vector<Finding> FindSlowLinks(const Measurements& measured, int plane,
                                   const LinkClasses& classes,
                                   const IsolatedRatios& isolated,
                                   const std::set<std::string>& busy,
                                   double tolerance) {
  std::vector<Finding> findings;
  std::size_t singles = 0;
  const bool cut_short = WasCutShort(measured, plane);
  for (const SlowPart& part : ExplainSlowLinks(classes, isolated, tolerance)) {
    if (measured.IsOtherWay(plane) &&
        (!IsWhole(part, classes) ||
         !IsFarBelow(part, LinkClasses(measured, 0), tolerance))) {
      continue;
    }
    if (IsSingle(part) && ++singles > kMostSingles) {
      continue;
    }
    Finding finding = DescribePart(measured, plane, part, tolerance);
    finding.links = part.links;
    if (finding.fault && !IsVerified(part, isolated, cut_short)) {
      Doubt(cut_short, busy, finding);
    }
    findings.push_back(std::move(finding));
  }
  if (singles > kMostSingles) {
    findings.push_back(
        MakeFinding(Kind::kOther, true,
                    Count(singles - kMostSingles, "single link") +
                        " more are slow; the reports' matrix shows them"));
  }
  return findings;
}

std::optional<Finding> FindMissingRails(const Measurements& measured) {
  std::size_t most = 0;
  for (const Rank& rank : measured.ranks) {
    most = std::max(most, rank.rails.size());
  }
  std::set<std::string> fewer;
  for (const Rank& rank : measured.ranks) {
    if (rank.rails.size() < most) {
      fewer.insert(rank.host);
    }
  }
  if (fewer.empty()) {
    return std::nullopt;
  }
  std::string hosts;
  for (const std::string& host : fewer) {
    hosts += (hosts.empty() ? "" : ", ") + host;
  }
  Finding finding = MakeFinding(
      Kind::kOther, true,
      (fewer.size() == 1 ? "host " : "hosts ") + hosts +
          (fewer.size() == 1 ? " has" : " have") + " fewer rails than " +
          std::to_string(most) +
          ", which others have: is a card missing, or a port down?");
  finding.host = fewer.size() == 1 ? hosts : "";
  return finding;
}

std::vector<Finding> FindSlowRails(const Measurements& measured,
                                   double tolerance) {
  const std::vector<RailRate> rails = RatesOfRails(measured);
  if (rails.size() < 2) {
    return {};
  }
  const bool unlike = HaveUnlikePorts(rails);
  const auto value = [unlike](const RailRate& rail) {
    return rail.bytes_per_s / (unlike ? rail.nominal_bytes_per_s : 1);
  };
  const RailRate best =
      *std::max_element(rails.begin(), rails.end(),
                        [&value](const RailRate& a, const RailRate& b) {
                          return value(a) < value(b);
                        });
  std::vector<Finding> findings;
  for (const RailRate& rail : rails) {
    if (value(rail) >= value(best) * (1 - tolerance)) {
      continue;
    }
    const std::string carries = measured.planes[rail.plane].name + " (" +
                                RailName(measured, rail.plane) + ") carries " +
                                FormatRate(rail.bytes_per_s);
    Finding finding = MakeFinding(
        Kind::kSlowRail, true,
        unlike ? carries + " of a nominal " +
                     FormatRate(rail.nominal_bytes_per_s) +
                     " on all hosts where " + measured.planes[best.plane].name +
                     " carries " + FormatRate(best.bytes_per_s) + " of " +
                     FormatRate(best.nominal_bytes_per_s)
               : carries + " on all hosts where the fastest rail carries " +
                     FormatRate(best.bytes_per_s));
    finding.plane = rail.plane;
    finding.weight = 1 - value(rail) / value(best);
    findings.push_back(std::move(finding));
  }
  return findings;
}

void DropConsequences(const Measurements& measured, double tolerance,
                      std::vector<Finding>& findings) {
  const std::vector<Finding> all = findings;
  const auto loss = [](const Finding& finding) {
    return finding.weight / static_cast<double>(finding.links.size());
  };
  // All rails together wait for the slowest.
  const auto explains = [&](const Finding& of_rail, const Finding& finding) {
    const std::set<Link> its(of_rail.links.begin(), of_rail.links.end());
    return of_rail.fault && of_rail.plane >= 0 &&
           measured.planes[of_rail.plane].rail >= 0 &&
           ((of_rail.kind == finding.kind &&
             of_rail.subject == finding.subject) ||
            (loss(finding) < loss(of_rail) + tolerance &&
             std::all_of(
                 finding.links.begin(), finding.links.end(),
                 [&its](const Link& link) { return its.contains(link); })));
  };
  const auto is_consequence = [&](const Finding& finding) {
    return finding.plane >= 0 && !finding.subject.empty() &&
           measured.planes[finding.plane].rail < 0 &&
           std::any_of(all.begin(), all.end(), [&](const Finding& other) {
             return explains(other, finding);
           });
  };
  std::erase_if(findings, is_consequence);
  DropOtherWays(measured, findings);
}

}  // namespace ringpipe::validate
