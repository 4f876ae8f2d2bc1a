#include "bootstrap/bootstrap.h"

namespace ringpipe {

std::string FormatRanks(const std::set<int>& ranks) {
  constexpr int kMostRuns = 16;
  std::string text;
  int runs = 0;
  for (auto at = ranks.begin(); at != ranks.end();) {
    const int first = *at;
    int last = first;
    for (++at; at != ranks.end() && *at == last + 1; ++at) {
      last = *at;
    }
    if (++runs > kMostRuns) {
      return text + ", ...";
    }
    text += (text.empty() ? "" : ", ") + std::to_string(first);
    if (last > first) {
      text += (last == first + 1 ? ", " : " to ") + std::to_string(last);
    }
  }
  return text;
}

}  // namespace ringpipe
