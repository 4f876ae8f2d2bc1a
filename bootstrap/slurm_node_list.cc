#include "bootstrap/slurm_node_list.h"

#include <algorithm>
#include <cctype>

namespace ringpipe {
namespace {

// "03" of "03-05,9"; empty if that is not a number.
std::string FirstOfRange(const std::string& ranges) {
  const std::string first = ranges.substr(0, ranges.find_first_of(",-"));
  const bool digits = std::all_of(first.begin(), first.end(), [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) != 0;
  });
  return digits ? first : "";
}

}  // namespace

Result<std::string> FirstSlurmHost(const std::string& list) {
  const Status bad(StatusCode::kInvalidArgument,
                   "\"" + list +
                       "\" is not a node list of Slurm's; set RINGPIPE_ROOT "
                       "to HOST:PORT of rank 0");
  std::string host;
  for (size_t at = 0; at < list.size() && list[at] != ','; ++at) {
    if (list[at] == ']') {
      return bad;
    }
    if (list[at] != '[') {
      host.push_back(list[at]);
      continue;
    }
    const size_t close = list.find(']', at);
    if (close == std::string::npos) {
      return bad;
    }
    const std::string first = FirstOfRange(list.substr(at + 1, close - at - 1));
    if (first.empty()) {
      return bad;
    }
    host += first;
    at = close;
  }
  if (host.empty()) {
    return bad;
  }
  return host;
}

}  // namespace ringpipe
