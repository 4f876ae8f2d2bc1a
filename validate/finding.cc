#include "validate/finding.h"

#include <algorithm>
#include <array>
#include <tuple>

namespace ringpipe::validate {

Finding MakeFinding(Finding::Kind kind, bool fault, std::string text) {
  Finding finding;
  finding.kind = kind;
  finding.fault = fault;
  finding.text = std::move(text);
  return finding;
}

const char* KindName(Finding::Kind kind) {
  constexpr std::array kNames = {
      "lost",           "wrong_bytes",      "slow_host",      "slow_sender",
      "slow_receiver",  "slow_path",        "slow_direction", "slow_rail",
      "below_expected", "slower_than_then", "port",           "error_counter",
      "unverified",     "disturbed",        "busy",           "contention",
      "latency",        "pattern",          "unmatched",      "few_links",
      "other"};
  return kNames[static_cast<std::size_t>(kind)];
}

void SortFindings(std::vector<Finding>& findings) {
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) {
                     return std::tuple(!a.fault, a.kind, -a.weight) <
                            std::tuple(!b.fault, b.kind, -b.weight);
                   });
}

}  // namespace ringpipe::validate
