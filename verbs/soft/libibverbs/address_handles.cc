// The exported functions that make an address handle of a completion: the way
// back to who sent a datagram.
#include <endian.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/ip.h>
#include <string.h>

#include <cstdint>
#include <optional>

#include "verbs/soft/verbs_functions.h"

namespace soft = ringpipe::verbs::soft;

namespace {

// What the 40 bytes in front of a datagram say.
struct Route {
  ibv_gid source;
  ibv_gid destination;
  std::uint32_t flow_label = 0;
  std::uint8_t traffic_class = 0;
};

ibv_gid MapIpv4(const std::uint32_t* address) {
  ibv_gid gid = {};
  gid.raw[10] = gid.raw[11] = 0xff;
  memcpy(gid.raw + 12, address, 4);
  return gid;
}

// RoCE v2 over IPv4 has the IP header in the last 20 bytes, in place of the
// GRH; the first ones then have no meaning, and may look like a version.
Route ParseRoute(const ibv_grh& grh, bool may_be_ipv4) {
  iphdr ip;
  memcpy(&ip, reinterpret_cast<const char*>(&grh) + sizeof grh - sizeof ip,
         sizeof ip);
  const std::uint32_t word = be32toh(grh.version_tclass_flow);
  if (may_be_ipv4 && ip.version == 4 && ip.ihl == 5 && word >> 28 != 6) {
    return {.source = MapIpv4(&ip.saddr),
            .destination = MapIpv4(&ip.daddr),
            .traffic_class = ip.tos};
  }
  return {.source = grh.sgid,
          .destination = grh.dgid,
          .flow_label = word & 0xfffff,
          .traffic_class = static_cast<std::uint8_t>(word >> 20)};
}

// The entry of the port's GID table with this GID.
std::optional<ibv_gid_entry> FindGid(ibv_context* context, std::uint8_t port,
                                     const ibv_gid& gid) {
  ibv_port_attr attributes;
  if (soft::QueryPortWhole(context, port, &attributes, sizeof attributes) !=
      0) {
    return std::nullopt;
  }
  for (int i = 0; i < attributes.gid_tbl_len; ++i) {
    ibv_gid_entry entry = {};
    if (soft::QueryGidEx(context, port, static_cast<std::uint32_t>(i), &entry,
                         0, sizeof entry) == 0 &&
        memcmp(entry.gid.raw, gid.raw, sizeof gid.raw) == 0) {
      return entry;
    }
  }
  return std::nullopt;
}

}  // namespace

extern "C" {

int ibv_init_ah_from_wc(ibv_context* context, std::uint8_t port, ibv_wc* wc,
                        ibv_grh* grh, ibv_ah_attr* attr) {
  *attr = {};
  attr->dlid = wc->slid;
  attr->src_path_bits = wc->dlid_path_bits;
  attr->port_num = port;
  ibv_port_attr attributes;
  if (soft::QueryPortWhole(context, port, &attributes, sizeof attributes) !=
      0) {
    errno = EINVAL;
    return -1;
  }
  const bool ethernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
  // On Ethernet the completion has the kind of IP header there.
  attr->sl = ethernet ? 0 : wc->sl;
  if ((wc->wc_flags & IBV_WC_GRH) == 0) {
    return 0;
  }
  const Route route = ParseRoute(*grh, ethernet);
  const auto own = FindGid(context, port, route.destination);
  if (!own) {
    errno = EINVAL;  // not sent to this port
    return -1;
  }
  attr->is_global = 1;
  attr->grh.dgid = route.source;
  attr->grh.sgid_index = static_cast<std::uint8_t>(own->gid_index);
  attr->grh.flow_label = route.flow_label;
  attr->grh.traffic_class = route.traffic_class;
  attr->grh.hop_limit = 0xff;
  return 0;
}

ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh,
                              std::uint8_t port) {
  ibv_ah_attr attr;
  if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) != 0) {
    return nullptr;
  }
  return soft::CreateAh(pd, &attr);
}

}  // extern "C"
