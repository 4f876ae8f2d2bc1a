#include "verbs/soft/port.h"

#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace ringpipe::verbs::soft {
namespace {

// LIDs from 0xc000 on are multicast's.
constexpr std::uint16_t kFirstMulticastLid = 0xc000;

FileDescriptor OpenNetlink() {
  FileDescriptor socket(::socket(
      AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
  sockaddr_nl address = {};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
  if (socket && bind(socket.get(), reinterpret_cast<sockaddr*>(&address),
                     sizeof address) != 0) {
    return FileDescriptor();
  }
  return socket;
}

// False for what is no address that a peer could use.
bool GidOf(const sockaddr* address, ibv_gid* gid) {
  *gid = {};
  if (address->sa_family == AF_INET) {
    const auto* ipv4 = reinterpret_cast<const sockaddr_in*>(address);
    gid->raw[10] = gid->raw[11] = 0xff;
    memcpy(gid->raw + 12, &ipv4->sin_addr, 4);
    return true;
  }
  const auto* ipv6 = reinterpret_cast<const sockaddr_in6*>(address);
  memcpy(gid->raw, &ipv6->sin6_addr, sizeof gid->raw);
  // Link-local ones mean nothing without the interface.
  return !IN6_IS_ADDR_LINKLOCAL(&ipv6->sin6_addr);
}

struct Found {
  Port::Entry entry;
  bool loopback;
  bool admitted;  // by the filter
};

std::vector<Found> ReadAddresses(const NameFilter& interfaces) {
  std::vector<Found> all;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return all;
  }
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    Found found = {};
    if (i->ifa_addr == nullptr ||
        (i->ifa_addr->sa_family != AF_INET &&
         i->ifa_addr->sa_family != AF_INET6) ||
        !GidOf(i->ifa_addr, &found.entry.gid)) {
      continue;
    }
    found.entry.interface = if_nametoindex(i->ifa_name);
    found.entry.up =
        (i->ifa_flags & IFF_UP) != 0 && (i->ifa_flags & IFF_RUNNING) != 0;
    // Not by its interface: a routed host may have its address on lo.
    found.loopback = IsLoopback(found.entry.gid);
    found.admitted = interfaces.Admits(i->ifa_name);
    all.push_back(found);
  }
  freeifaddrs(list);
  // First what others can reach, and of that IPv4: what programs that take GID
  // 0 expect to work.
  std::stable_sort(all.begin(), all.end(),
                   [](const Found& left, const Found& right) {
                     return std::pair(left.loopback, !IsIpv4(left.entry.gid)) <
                            std::pair(right.loopback, !IsIpv4(right.entry.gid));
                   });
  return all;
}

}  // namespace

bool SameGid(const ibv_gid& left, const ibv_gid& right) {
  return memcmp(left.raw, right.raw, sizeof left.raw) == 0;
}

bool IsIpv4(const ibv_gid& gid) {
  constexpr std::uint8_t kPrefix[12] = {0, 0, 0, 0, 0,    0,
                                        0, 0, 0, 0, 0xff, 0xff};
  return memcmp(gid.raw, kPrefix, sizeof kPrefix) == 0;
}

bool IsLoopback(const ibv_gid& gid) {
  in6_addr address;
  memcpy(&address, gid.raw, sizeof address);
  return IsIpv4(gid) ? gid.raw[12] == 127 : IN6_IS_ADDR_LOOPBACK(&address);
}

bool Port::Entry::operator==(const Entry& other) const {
  return SameGid(gid, other.gid) && interface == other.interface;
}

Port::Port(LinkLayer link_layer, NameFilter interfaces)
    : link_layer_(link_layer),
      interfaces_(std::move(interfaces)),
      netlink_(OpenNetlink()) {
  Read();
}

void Port::Read() {
  const std::vector<Found> found = ReadAddresses(interfaces_);
  const bool named = !interfaces_.admits_all() && !interfaces_.excludes();
  const bool only_loopback =
      named || std::all_of(found.begin(), found.end(), [](const Found& one) {
        return one.loopback || !one.admitted;
      });
  std::vector<Entry> wanted;
  local_.clear();
  for (const Found& one : found) {
    local_.push_back(one.entry.gid);
    if (one.admitted && (only_loopback || !one.loopback)) {
      wanted.push_back(one.entry);
    }
  }
  // An entry keeps its index as long as it lives.
  for (Entry& entry : gids_) {
    const auto same = std::find(wanted.begin(), wanted.end(), entry);
    entry = same != wanted.end() ? *same : Entry();
    if (same != wanted.end()) {
      wanted.erase(same);
    }
  }
  for (const Entry& entry : wanted) {
    const auto hole =
        std::find_if(gids_.begin(), gids_.end(),
                     [](const Entry& one) { return one.interface == 0; });
    if (hole != gids_.end()) {
      *hole = entry;
    }
  }
}

std::vector<ibv_event_type> Port::Refresh() {
  char discarded[4096];
  while (recv(netlink_.get(), discarded, sizeof discarded, 0) > 0) {
  }
  std::lock_guard lock(mutex_);
  const bool was_active = Active();
  const std::uint16_t old_lid = Lid();
  const std::array<Entry, kGidEntries> old_gids = gids_;
  Read();
  std::vector<ibv_event_type> events;
  if (was_active != Active()) {
    events.push_back(was_active ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE);
  }
  if (old_gids != gids_) {
    events.push_back(IBV_EVENT_GID_CHANGE);
  }
  if (link_layer_ == LinkLayer::kInfiniband && old_lid != Lid()) {
    events.push_back(IBV_EVENT_LID_CHANGE);
  }
  return events;
}

bool Port::Active() const {
  return std::any_of(gids_.begin(), gids_.end(),
                     [](const Entry& entry) { return entry.up; });
}

std::uint16_t Port::Lid() const {
  const auto low = static_cast<std::uint16_t>(gids_[0].gid.raw[14] << 8 |
                                              gids_[0].gid.raw[15]);
  const bool usable =
      IsIpv4(gids_[0].gid) && low != 0 && low < kFirstMulticastLid;
  return usable ? low : 1;  // and then good for this host only
}

ibv_port_attr Port::attributes() const {
  std::lock_guard lock(mutex_);
  ibv_port_attr attr = {};
  attr.state = Active() ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attr.max_mtu = IBV_MTU_4096;
  attr.active_mtu = IBV_MTU_4096;
  attr.gid_tbl_len = kGidEntries;
  attr.pkey_tbl_len = 1;
  attr.max_msg_sz = 1u << 30;
  attr.max_vl_num = 1;
  attr.active_width = 2;               // 4x
  attr.active_speed = 32;              // EDR
  attr.phys_state = Active() ? 5 : 3;  // link up, disabled
  attr.port_cap_flags = IBV_PORT_CM_SUP;
  if (link_layer_ == LinkLayer::kEthernet) {
    attr.link_layer = IBV_LINK_LAYER_ETHERNET;
    attr.flags = IBV_QPF_GRH_REQUIRED;
  } else {
    attr.link_layer = IBV_LINK_LAYER_INFINIBAND;
    attr.lid = Lid();
    attr.sm_lid = 1;
  }
  return attr;
}

bool Port::QueryGid(int index, Entry* entry) const {
  if (index < 0 || index >= kGidEntries) {
    return false;
  }
  std::lock_guard lock(mutex_);
  *entry = gids_[index];
  return true;
}

std::optional<ibv_gid> Port::Destination(const ibv_ah_attr& path) const {
  std::lock_guard lock(mutex_);
  if (path.port_num != 1) {
    return std::nullopt;
  }
  if (path.is_global != 0) {
    if (path.grh.sgid_index >= kGidEntries ||
        gids_[path.grh.sgid_index].interface == 0) {
      return std::nullopt;
    }
    return path.grh.dgid;
  }
  if (link_layer_ == LinkLayer::kEthernet || path.dlid == 0 ||
      path.dlid >= kFirstMulticastLid) {
    return std::nullopt;
  }
  ibv_gid gid = gids_[0].gid;
  if (path.dlid != Lid()) {
    if (!IsIpv4(gid)) {
      return std::nullopt;
    }
    gid.raw[14] = static_cast<std::uint8_t>(path.dlid >> 8);
    gid.raw[15] = static_cast<std::uint8_t>(path.dlid);
  }
  return gid;
}

ibv_gid Port::Source(const ibv_ah_attr& path) const {
  std::lock_guard lock(mutex_);
  return gids_[path.is_global != 0 ? path.grh.sgid_index % kGidEntries : 0].gid;
}

bool Port::IsLocal(const ibv_gid& address) const {
  std::lock_guard lock(mutex_);
  return std::any_of(
      local_.begin(), local_.end(),
      [&address](const ibv_gid& own) { return SameGid(own, address); });
}

}  // namespace ringpipe::verbs::soft
