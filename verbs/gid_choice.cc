#include "verbs/gid_choice.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <fstream>

namespace ringpipe::verbs {
namespace {

// Real tables have 16 to 256 entries.
constexpr int kMaxEntries = 1024;

bool IsEmpty(const ibv_gid& gid) {
  return std::all_of(std::begin(gid.raw), std::end(gid.raw),
                     [](std::uint8_t byte) { return byte == 0; });
}

// fe80::/10
bool IsLinkLocal(const ibv_gid& gid) {
  return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80;
}

// ::ffff:0:0/96
bool IsIpv4Mapped(const ibv_gid& gid) {
  constexpr std::uint8_t kPrefix[12] = {0, 0, 0, 0, 0,    0,
                                        0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, kPrefix, sizeof(kPrefix)) == 0;
}

bool IsRoceV2(const std::string& port_folder, int index) {
  std::ifstream file(port_folder + "/gid_attrs/types/" + std::to_string(index));
  std::string type;
  return std::getline(file, type) && type == "RoCE v2";
}

}  // namespace

std::optional<GidChoice> ChooseGid(const Library& library, ibv_context* context,
                                   int port, int table_entries,
                                   const std::string& port_folder) {
  std::optional<GidChoice> best;
  int best_score = -1;
  for (int i = 0; i < std::min(table_entries, kMaxEntries); ++i) {
    ibv_gid gid = {};
    // An entry that cannot be read is an empty one.
    if (library.query_gid(context, static_cast<std::uint8_t>(port), i, &gid) !=
            0 ||
        IsEmpty(gid)) {
      continue;
    }
    const int score = (IsLinkLocal(gid) ? 0 : 4) +
                      (IsRoceV2(port_folder, i) ? 2 : 0) +
                      (IsIpv4Mapped(gid) ? 1 : 0);
    if (score > best_score) {
      best = GidChoice{i, gid};
      best_score = score;
    }
  }
  return best;
}

std::string GidText(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, gid.raw, text, sizeof(text));
  return text;
}

}  // namespace ringpipe::verbs
