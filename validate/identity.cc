#include "validate/identity.h"

#include <algorithm>
#include <bit>
#include <map>
#include <regex>
#include <utility>

#include "engine/lost_rank.h"
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

using Processors = std::vector<std::uint8_t>;

// Those of either; not known where one is not.
Processors Join(Processors one, const Processors& other) {
  if (one.empty() || other.empty()) {
    return {};
  }
  one.resize(std::max(one.size(), other.size()));
  for (std::size_t i = 0; i < other.size(); ++i) {
    one[i] |= other[i];
  }
  return one;
}

int CountBits(const Processors& processors) {
  int bits = 0;
  for (const std::uint8_t byte : processors) {
    bits += std::popcount(byte);
  }
  return bits;
}

// `ranks` are those of `identities`, with their hosts' names.
void SetCores(const std::vector<Identity>& identities,
              std::vector<Rank>& ranks) {
  std::map<std::string, Processors> of_host;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const Processors& own = identities[i].processors;
    const auto [host, is_new] = of_host.emplace(ranks[i].host, own);
    if (!is_new) {
      host->second = Join(std::move(host->second), own);
    }
  }
  for (Rank& rank : ranks) {
    rank.cores = CountBits(of_host[rank.host]);
  }
}

}  // namespace

std::string Identity::Serialize() const {
  const Json json = {{"host_name", host_name},
                     {"host_id", host_id},
                     {"pid", pid},
                     {"device", device},
                     {"processors", processors}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<Identity> Identity::Parse(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  try {
    return Identity{json.at("host_name"), json.at("host_id"), json.at("pid"),
                    json.at("device"), json.at("processors").get<Processors>()};
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
         /*cores=*/0});
  }
  SetCores(identities, ranks);
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
  if (failure.code() == StatusCode::kTimeout) {
    // It also names the rank whose call it was, and those that are at work.
    for (const char* const expression :
         {"rank ([0-9]+) does not answer", "rank\\(s\\) ([0-9]+) of "}) {
      if (const int rank = NumberIn(failure.message(), expression); rank >= 0) {
        return rank;
      }
    }
  }
  return ringpipe::LostRank(failure);
}

}  // namespace ringpipe::validate
