#include <algorithm>
#include <set>
#include <utility>

#include "validate/analysis_parts.h"
#include "validate/format.h"
#include "validate/part_sentences.h"

namespace ringpipe::validate {
namespace {

using Kind = Finding::Kind;

constexpr std::size_t kMostSingles = 50;

// Of many links those that are slower than the others are found otherwise.
// Those that share a cable carry what is expected together.
std::optional<Finding> ExpectOf(int plane, const LinkClass& members,
                                double expected, double tolerance) {
  const double carried =
      (members.few() ? members.min : members.reference) * members.load;
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

}  // namespace

std::vector<Finding> FindBelowExpected(const Measurements& measured, int plane,
                                       const LinkClasses& classes,
                                       const AnalysisOptions& options,
                                       bool has_baseline) {
  std::vector<Finding> findings;
  const bool on_one_host = measured.OnOneHost();
  std::size_t judged = 0;
  for (const LinkClass& members : classes.classes()) {
    // What is expected, all rails carry together.
    const bool expected = options.expect_bytes_per_s &&
                          (members.between || on_one_host) &&
                          measured.planes[plane].rail < 0;
    judged += members.few() ? 0 : 1;
    if (expected) {
      ++judged;
      if (auto finding = ExpectOf(plane, members, *options.expect_bytes_per_s,
                                  options.tolerance)) {
        findings.push_back(*std::move(finding));
      }
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
                                   double tolerance) {
  std::vector<Finding> findings;
  std::size_t singles = 0;
  for (const SlowPart& part : ExplainSlowLinks(classes, isolated, tolerance)) {
    const bool single = part.kind == SlowPart::Kind::kLink ||
                        part.kind == SlowPart::Kind::kLinkBoth;
    if (!single || ++singles <= kMostSingles) {
      findings.push_back(DescribePart(measured, plane, part));
    }
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
  std::vector<std::pair<double, int>> rails;
  for (std::size_t plane = 0; plane < measured.planes.size(); ++plane) {
    if (measured.planes[plane].rail < 0) {
      continue;
    }
    const LinkClasses classes(measured, measured.planes[plane]);
    std::vector<double> references;
    for (const LinkClass& members : classes.classes()) {
      if (members.between) {
        references.push_back(members.reference);
      }
    }
    if (!references.empty()) {
      rails.emplace_back(Median(references), static_cast<int>(plane));
    }
  }
  if (rails.size() < 2) {
    return {};
  }
  std::vector<Finding> findings;
  const double best = std::max_element(rails.begin(), rails.end())->first;
  for (const auto& [rate, plane] : rails) {
    if (rate < best * (1 - tolerance)) {
      Finding finding = MakeFinding(Kind::kSlowRail, true,
                                    measured.planes[plane].name + " (" +
                                        RailName(measured, plane) +
                                        ") carries " + FormatRate(rate) +
                                        " on all hosts where the "
                                        "fastest rail carries " +
                                        FormatRate(best));
      finding.plane = plane;
      finding.weight = 1 - rate / best;
      findings.push_back(std::move(finding));
    }
  }
  return findings;
}

void DropConsequences(const Measurements& measured,
                      std::vector<Finding>& findings) {
  const std::vector<Finding> all = findings;
  const auto is_consequence = [&](const Finding& finding) {
    return finding.plane >= 0 && !finding.subject.empty() &&
           measured.planes[finding.plane].rail < 0 &&
           std::any_of(all.begin(), all.end(), [&](const Finding& other) {
             return other.fault && other.kind == finding.kind &&
                    other.subject == finding.subject && other.plane >= 0 &&
                    measured.planes[other.plane].rail >= 0;
           });
  };
  std::erase_if(findings, is_consequence);
}

}  // namespace ringpipe::validate
