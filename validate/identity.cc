#include "validate/identity.h"

#include <algorithm>
#include <map>
#include <regex>

#include "nlohmann/json.hpp"

namespace ringpipe::validate {
namespace {

using Json = nlohmann::ordered_json;

// The number that the expression's first group has, where it matches.
int NumberIn(const std::string& text, const char* expression) {
  std::smatch match;
  constexpr std::size_t kMostDigits = 6;
  return std::regex_search(text, match, std::regex(expression)) &&
                 match[1].length() <= static_cast<long>(kMostDigits)
             ? std::stoi(match[1])
             : -1;
}

}  // namespace

std::string Identity::Serialize() const {
  const Json json = {{"host_name", host_name},
                     {"host_id", host_id},
                     {"pid", pid},
                     {"device", device},
                     {"cores", cores}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<Identity> Identity::Parse(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  try {
    return Identity{json.at("host_name"), json.at("host_id"), json.at("pid"),
                    json.at("device"), json.at("cores")};
  } catch (const Json::exception&) {
    return Status(StatusCode::kMismatch,
                  "a rank runs another version of this program");
  }
}

std::vector<Rank> NameRanks(const std::vector<Identity>& identities) {
  std::map<std::string, std::vector<std::string>> ids_of_name;
  for (const Identity& identity : identities) {
    std::vector<std::string>& ids = ids_of_name[identity.host_name];
    if (std::find(ids.begin(), ids.end(), identity.host_id) == ids.end()) {
      ids.push_back(identity.host_id);
    }
  }
  std::vector<Rank> ranks;
  for (const Identity& identity : identities) {
    const std::vector<std::string>& ids = ids_of_name[identity.host_name];
    const auto number =
        std::find(ids.begin(), ids.end(), identity.host_id) - ids.begin();
    ranks.push_back(
        {identity.host_name + (ids.size() > 1 ? "#" + std::to_string(number + 1)
                                              : std::string()),
         identity.pid, identity.device, RailsOf(identity.device),
         identity.cores});
  }
  return ranks;
}

std::string WayOf(std::string_view device) {
  return device.starts_with("host memory: all") ? "host memory"
         : device.find("(software device)") != std::string_view::npos &&
                 RailsOf(device).empty()
             ? "software device"
             : "RDMA";
}

std::vector<std::string> RailsOf(std::string_view device) {
  // "mlx5_0 port 1: REASON; mlx5_1 port 1: REASON"
  const std::string text(device);
  const std::regex expression("(?:^|; )(\\S+) port ([0-9]+): ");
  std::vector<std::string> rails;
  for (auto match = std::sregex_iterator(text.begin(), text.end(), expression);
       match != std::sregex_iterator(); ++match) {
    rails.push_back((*match)[1].str() + ":" + (*match)[2].str());
  }
  return rails;
}

int LostRank(const Status& failure) {
  std::vector<const char*> expressions;
  if (failure.code() == StatusCode::kPeerLost) {
    expressions = {"connection of rank [0-9]+ to rank ([0-9]+) ",
                   "rank ([0-9]+) does not answer", "rank ([0-9]+) \\(",
                   "rank\\(s\\) ([0-9]+)", "rank ([0-9]+)(?!:)\\b"};
  } else if (failure.code() == StatusCode::kTimeout) {
    // It also names the rank whose call it was, and those that are at work.
    expressions = {"rank ([0-9]+) does not answer", "rank\\(s\\) ([0-9]+) of "};
  }
  for (const char* const expression : expressions) {
    if (const int rank = NumberIn(failure.message(), expression); rank >= 0) {
      return rank;
    }
  }
  return -1;
}

}  // namespace ringpipe::validate
