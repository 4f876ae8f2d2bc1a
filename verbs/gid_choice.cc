#include "verbs/gid_choice.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "verbs/ip_address.h"

namespace ringpipe::verbs {
namespace {

// Real tables have 1 to 256 entries.
// ibv_global_route::sgid_index has 8 bits: later entries cannot be used.
constexpr int kMaxEntries = 256;

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

// "" where it cannot be read, as the attributes of an empty entry cannot.
std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

GidEntry MakeEntry(int index, const ibv_gid& gid,
                   const std::string& port_folder) {
  const std::string number = std::to_string(index);
  return {index, gid, FirstLine(port_folder + "/gid_attrs/types/" + number),
          FirstLine(port_folder + "/gid_attrs/ndevs/" + number)};
}

std::string Describe(const GidEntry& entry) {
  std::string more = entry.type;
  if (!entry.interface.empty()) {
    more += (more.empty() ? "" : ", ") + entry.interface;
  }
  return std::to_string(entry.index) + ": " + GidText(entry.gid) +
         (more.empty() ? "" : " (" + more + ")");
}

std::string DescribeAll(const std::vector<GidEntry>& table) {
  std::string text;
  for (const GidEntry& entry : table) {
    text += (text.empty() ? "" : ", ") + Describe(entry);
  }
  return text.empty() ? "no entry" : text;
}

}  // namespace

std::vector<GidEntry> ReadGidTable(const Library& library, ibv_context* context,
                                   int port, int table_entries,
                                   const std::string& port_folder) {
  std::vector<GidEntry> table;
  for (int i = 0; i < std::min(table_entries, kMaxEntries); ++i) {
    ibv_gid gid = {};
    // An entry that cannot be read is an empty one.
    if (library.query_gid(context, static_cast<std::uint8_t>(port), i, &gid) ==
            0 &&
        !IsEmpty(gid)) {
      table.push_back(MakeEntry(i, gid, port_folder));
    }
  }
  return table;
}

std::optional<std::vector<GidEntry>> ReadGidTable(
    const std::string& port_folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(port_folder + "/gids", ignored)) {
    return std::nullopt;
  }
  std::vector<GidEntry> table;
  for (int i = 0; i < kMaxEntries; ++i) {
    const std::string path = port_folder + "/gids/" + std::to_string(i);
    if (!std::filesystem::exists(path, ignored)) {
      break;
    }
    ibv_gid gid = {};
    if (inet_pton(AF_INET6, FirstLine(path).c_str(), gid.raw) == 1 &&
        !IsEmpty(gid)) {
      table.push_back(MakeEntry(i, gid, port_folder));
    }
  }
  return table;
}

Result<GidEntry> ChooseGid(const std::vector<GidEntry>& table,
                           const AddressRequest& request,
                           const std::string& port_name) {
  const std::optional<IpAddress> met_at = IpAddress::Parse(request.met_at);
  const GidEntry* best = nullptr;
  int best_score = -1;
  for (const GidEntry& entry : table) {
    if (request.gid_index && *request.gid_index == entry.index) {
      return entry;
    }
    const int score = (met_at && std::memcmp(met_at->bytes, entry.gid.raw,
                                             sizeof(entry.gid.raw)) == 0
                           ? 4
                           : 0) +
                      (entry.type == "RoCE v2" ? 2 : 0) +
                      (IsIpv4Mapped(entry.gid) ? 1 : 0);
    if (!IsLinkLocal(entry.gid) && score > best_score) {
      best = &entry;
      best_score = score;
    }
  }
  if (request.gid_index) {
    return Status(StatusCode::kInvalidArgument,
                  request.variable + "=" + std::to_string(*request.gid_index) +
                      ": this entry of the GID table of " + port_name +
                      " is empty or beyond its end; the table has " +
                      DescribeAll(table));
  }
  if (best == nullptr) {
    const std::string interface = table.empty() ? "" : table.front().interface;
    return Status(
        StatusCode::kUnavailable,
        port_name + " has no usable GID: give its network interface" +
            (interface.empty() ? "" : " " + interface) +
            " an IP address (the table has " + DescribeAll(table) +
            "; RINGPIPE_GID_INDEX uses a link-local one all the same)");
  }
  return *best;
}

std::string GidText(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, gid.raw, text, sizeof(text));
  return text;
}

}  // namespace ringpipe::verbs
