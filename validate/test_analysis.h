// Simulated clusters with little noise, and what an analysis says of them.
#ifndef RINGPIPE_VALIDATE_TEST_ANALYSIS_H_
#define RINGPIPE_VALIDATE_TEST_ANALYSIS_H_

#include <string>
#include <utility>
#include <vector>

#include "validate/analysis.h"
#include "validate/simulated_cluster.h"

namespace ringpipe::validate::testing {

inline ClusterOptions Quiet(int hosts, std::vector<Fault> faults = {}) {
  return {.hosts = hosts,
          .noise = 0.01,
          .memory_noise = 0.01,
          .disturbed = 0,
          .faults = std::move(faults)};
}

// A line each.
inline std::string Texts(const Analysis& analysis) {
  std::string texts = analysis.summary + "\n";
  for (const Finding& finding : analysis.findings) {
    texts += std::string(KindName(finding.kind)) + ": " + finding.text + "\n";
  }
  return texts;
}

inline bool Says(const Analysis& analysis, const std::string& words) {
  return Texts(analysis).find(words) != std::string::npos;
}

inline std::vector<Finding> Faults(const Analysis& analysis) {
  std::vector<Finding> faults = analysis.findings;
  std::erase_if(faults, [](const Finding& finding) { return !finding.fault; });
  return faults;
}

}  // namespace ringpipe::validate::testing

#endif  // RINGPIPE_VALIDATE_TEST_ANALYSIS_H_
