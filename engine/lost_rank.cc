#include "engine/lost_rank.h"

#include <regex>
#include <string>

namespace ringpipe {

int LostRank(const Status& failure) {
  if (failure.code() != StatusCode::kPeerLost) {
    return -1;
  }
  // Not the rank that says so: "rank 1: the connection of ..."
  for (const char* const expression :
       {"connection of rank [0-9]+ to rank ([0-9]{1,6}) ",
        "rank ([0-9]{1,6}) does not answer", "rank ([0-9]{1,6}) \\(",
        "rank\\(s\\) ([0-9]{1,6})", "rank ([0-9]{1,6})(?!:)\\b"}) {
    std::smatch match;
    if (std::regex_search(failure.message(), match, std::regex(expression))) {
      return std::stoi(match[1]);
    }
  }
  return -1;
}

}  // namespace ringpipe
