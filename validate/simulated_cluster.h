// For tests: what a validation would measure on a cluster that there is not.
#ifndef RINGPIPE_VALIDATE_SIMULATED_CLUSTER_H_
#define RINGPIPE_VALIDATE_SIMULATED_CLUSTER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "validate/measurements.h"

namespace ringpipe::validate::testing {

struct Fault {
  enum class Kind {
    kHost,        // both directions of host `a`
    kSender,      // what host `a` sends
    kReceiver,    // what it receives
    kPath,        // hosts `a` and `b`, both ways
    kDirection,   // from host `a` to host `b`
    kRail,        // one rail of all hosts
    kContention,  // the lower half of the hosts to the upper one, in company
    kHosts,       // both directions of hosts 0 to `a` - 1: a kind of NIC
    kLeaf,        // uplinks of the switch of host `a`: in company alone
    kUplink,      // one path in four from that switch to others
    kGroups,      // from the switch of host `a` to the one of host `b`: each
                  // path, and in company what that pair has
  };
  Kind kind = Kind::kHost;
  int a = 0;
  int b = 0;
  double loss = 0.5;  // of the bandwidth
  int rail = -1;      // of one rail alone; -1: of all
};

struct ClusterOptions {
  int hosts = 8;
  int ranks_per_host = 1;
  int ranks_of_first_host = 0;  // 0: as of the others
  int rails = 1;                // each carries its part of bytes_per_s
  double bytes_per_s = 12e9;
  // Standard deviations, as parts: of a sample, and of links from each other.
  double noise = 0.02;
  double memory_noise = 0.25;  // instead, inside a host
  double unlike = 0.005;
  // How many samples are disturbed: halved or worse.
  double disturbed = 0.005;
  // The same of links alone; nullopt: as in company.
  std::optional<double> alone_noise = {};
  std::optional<double> alone_disturbed = {};
  // How often a host is busy, for a spell of so many steps (alone: links) on
  // end: all samples of all its links are disturbed then. The first
  // `busy_hosts` are busy 40 % of it. And how often a spell disturbs all hosts
  // at once: what they share is busy.
  double busy = 0;
  int busy_hosts = 0;
  double shared_busy = 0;
  int spell = 1;
  // So many hosts on one switch, of which latencies tell; 0: all are on one.
  // It has uplinks for 1 / `oversubscribed` of them; or, in a dragonfly, each
  // pair of groups has cables for so many hosts. 0: it is a tree.
  int leaf_hosts = 0;
  double oversubscribed = 1;
  double pair_cables = 0;
  // How many paths share a cable with another one in company, by their hashes.
  double collisions = 0;
  std::uint64_t seed = 1;
  std::vector<Fault> faults = {};
};

// "c00", "c01", ...
std::string HostName(int host);

// Latencies, all links in company, then suspects and controls alone; by all
// rails and, where there are several, by each.
Measurements MeasureCluster(const ClusterOptions& options,
                            double tolerance = 0.10);

}  // namespace ringpipe::validate::testing

#endif  // RINGPIPE_VALIDATE_SIMULATED_CLUSTER_H_
