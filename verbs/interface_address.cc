#include "verbs/interface_address.h"

#include <ifaddrs.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/list_directory.h"

namespace ringpipe::verbs {
namespace {

constexpr std::size_t kMacBytes = 6;

using Addresses = std::unique_ptr<ifaddrs, decltype(&freeifaddrs)>;

bool HasMac(const ifaddrs& one, const ibv_gid& gid) {
  if (one.ifa_addr == nullptr || one.ifa_addr->sa_family != AF_PACKET) {
    return false;
  }
  sockaddr_ll link = {};
  std::memcpy(&link, one.ifa_addr, sizeof(link));
  // Loopback's is all zeros, as is a GID that could not be read.
  return link.sll_halen == kMacBytes &&
         std::memcmp(link.sll_addr, gid.raw, kMacBytes) == 0 &&
         std::any_of(gid.raw, gid.raw + kMacBytes,
                     [](std::uint8_t byte) { return byte != 0; });
}

std::string FindInterface(const std::filesystem::path& device_folder, int port,
                          const ibv_gid& first_gid, const ifaddrs* addresses) {
  std::ifstream file(device_folder / "ports" / std::to_string(port) /
                     "gid_attrs" / "ndevs" / "0");
  std::string name;
  if (std::getline(file, name) && !name.empty()) {
    return name;
  }
  for (const ifaddrs* i = addresses; i != nullptr; i = i->ifa_next) {
    if (HasMac(*i, first_gid)) {
      return i->ifa_name;
    }
  }
  const std::vector<std::string> names =
      ListDirectory(device_folder / "device" / "net");
  return names.empty() ? "" : names.front();
}

// 2: IPv4; 1: IPv6; 0: no address that a peer on another host could use.
int ToAddress(const sockaddr& from, ibv_gid* to) {
  *to = {};
  if (from.sa_family == AF_INET) {
    sockaddr_in ipv4 = {};
    std::memcpy(&ipv4, &from, sizeof(ipv4));
    to->raw[10] = to->raw[11] = 0xff;
    std::memcpy(to->raw + 12, &ipv4.sin_addr, sizeof(ipv4.sin_addr));
    return 2;
  }
  if (from.sa_family == AF_INET6) {
    sockaddr_in6 ipv6 = {};
    std::memcpy(&ipv6, &from, sizeof(ipv6));
    std::memcpy(to->raw, &ipv6.sin6_addr, sizeof(to->raw));
    return IN6_IS_ADDR_LINKLOCAL(&ipv6.sin6_addr) ? 0 : 1;
  }
  return 0;
}

}  // namespace

Result<InterfaceAddress> FindInterfaceAddress(const std::string& sysfs_class,
                                              const std::string& device,
                                              int port,
                                              const ibv_gid& first_gid) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return ErrnoStatus(StatusCode::kUnavailable,
                       "the network interfaces' addresses", errno);
  }
  const Addresses addresses(list, &freeifaddrs);
  const std::string port_name = device + " port " + std::to_string(port);
  InterfaceAddress best;
  best.interface = FindInterface(std::filesystem::path(sysfs_class) / device,
                                 port, first_gid, list);
  if (best.interface.empty()) {
    return Status(StatusCode::kUnavailable,
                  "the network interface of " + port_name +
                      " cannot be found: is it in another network namespace?");
  }
  int best_score = 0;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    ibv_gid address = {};
    if (i->ifa_addr == nullptr || best.interface != i->ifa_name) {
      continue;
    }
    const int score = ToAddress(*i->ifa_addr, &address);
    if (score > best_score) {
      best.address = address;
      best_score = score;
    }
  }
  if (best_score == 0) {
    return Status(StatusCode::kUnavailable,
                  port_name + " has no address: give its network interface " +
                      best.interface + " an IP address");
  }
  return best;
}

}  // namespace ringpipe::verbs
