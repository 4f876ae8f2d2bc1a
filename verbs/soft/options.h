#ifndef RINGPIPE_VERBS_SOFT_OPTIONS_H_
#define RINGPIPE_VERBS_SOFT_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "base/deadline.h"
#include "base/environment.h"
#include "base/name_filter.h"

namespace ringpipe::verbs::soft {

// What the device's port says it is.
enum class LinkLayer {
  kEthernet,    // RoCE v2: no LID, a path needs a GRH
  kInfiniband,  // a LID; a path may have a GRH
};

struct Options {
  // Seed of the adversarial mode; 0: off. On, work requests execute late,
  // their sources are read at the last moment, and completions of different
  // queue pairs interleave at will, all by this seed.
  std::uint64_t adversary_seed = 0;
  LinkLayer link_layer = LinkLayer::kEthernet;
  // Contexts of one machine that have different host ids treat each other as
  // other hosts.
  std::string host_id = "";
  // What all contexts that are to find and to trust each other share: their
  // names on a host are made from it, and the handshake between hosts proves
  // it.
  std::string key = "";
  // Whether contexts of other hosts are talked to: where they have the key.
  bool other_hosts = false;
  // TCP and UDP ports, the same on all hosts.
  int first_port = 16384;
  int last_port = 32767;
  // The network interfaces whose addresses the port has, and listens at.
  NameFilter interfaces = {};
  // With a time here TCP is believed: a peer on another host is lost when its
  // connection ends, or when that host has acknowledged nothing for so long,
  // and a queue pair's own timeout does not count. Zero, for programs that were
  // written for adapters: that timeout counts, and a connection that was lost
  // is made anew.
  std::chrono::milliseconds tcp_timeout{0};
  // Where TCP is believed: until when the first connection to a peer may take.
  Clock::time_point connect_by = Clock::time_point::max();

  bool operator==(const Options&) const = default;

  static Options From(const Environment& environment) {
    Options options;
    options.adversary_seed =
        static_cast<std::uint64_t>(environment.soft_adversary_seed);
    options.link_layer = environment.soft_link_layer == "infiniband"
                             ? LinkLayer::kInfiniband
                             : LinkLayer::kEthernet;
    options.host_id = environment.host_id;
    options.key = environment.secret;
    options.other_hosts = !environment.secret.empty();
    options.first_port = environment.soft_first_port;
    options.last_port = environment.soft_last_port;
    // It was checked when the environment was read.
    if (auto interfaces = NameFilter::Parse(environment.socket_interfaces,
                                            NameFilter::Ports::kNone);
        interfaces.ok()) {
      options.interfaces = std::move(interfaces).value();
    }
    return options;
  }
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_OPTIONS_H_
