// What Analyze is made of: each looks at one sort of figures. Pure.
#ifndef RINGPIPE_VALIDATE_ANALYSIS_PARTS_H_
#define RINGPIPE_VALIDATE_ANALYSIS_PARTS_H_

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "validate/analysis.h"

namespace ringpipe::validate {

// --- The bandwidths of a plane (bandwidth_findings.cc) ---

// Against what options.expect_bytes_per_s says; and whether the first plane has
// too few links to speak for themselves.
std::vector<Finding> FindBelowExpected(const Measurements& measured, int plane,
                                       const LinkClasses& classes,
                                       const AnalysisOptions& options,
                                       bool has_baseline);
// Against each other.
std::vector<Finding> FindSlowLinks(const Measurements& measured, int plane,
                                   const LinkClasses& classes,
                                   const IsolatedRatios& isolated,
                                   const std::set<std::string>& busy,
                                   double tolerance);

// --- The rails beside each other (bandwidth_findings.cc) ---

// On hosts that have fewer than others. Rails are compared by number, so that
// they cannot be measured by themselves then.
std::optional<Finding> FindMissingRails(const Measurements& measured);
// A rail that is slow on all hosts has no host that stands out. Where rails
// have ports of different rates, each is held against its own.
std::vector<Finding> FindSlowRails(const Measurements& measured,
                                   double tolerance);
// A host, or a path, that is slow on one rail is slow on all rails together:
// the rail is the finding.
void DropConsequences(const Measurements& measured, double tolerance,
                      std::vector<Finding>& findings);

// --- The rest ---

// Since an earlier run (baseline_findings.cc).
std::vector<Finding> FindChanges(const Measurements& measured,
                                 const Measurements& baseline,
                                 double tolerance);
// A host unlike the others (host_findings.cc): many of its messages are
// disturbed; its latency has a long tail; TCP sends much of it again. Or its
// ranks waited for cores, which explains the first two.
std::vector<Finding> FindDisturbedHosts(const Measurements& measured);
std::vector<Finding> FindLateHosts(const Measurements& measured);
std::vector<Finding> FindLossyHosts(const Measurements& measured);
std::set<std::string> BusyHosts(const Measurements& measured, int plane,
                                double most_queued);
std::optional<Finding> FindBusyHosts(const std::set<std::string>& busy);
// All links alike, against what the ports say that they do.
std::optional<Finding> FindBelowPorts(const Measurements& measured,
                                      const Analysis& analysis);
// A host, or a pair, that takes much longer than others of its kind
// (latency_findings.cc).
std::vector<Finding> FindLongLatencies(const Measurements& measured);
// What many ranks do at once, against what their links promise
// (together_findings.cc).
std::optional<Finding> FindPoorPatterns(const Measurements& measured);

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_ANALYSIS_PARTS_H_
