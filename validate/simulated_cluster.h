// For tests: what a validation would measure on a cluster that there is not.
#ifndef RINGPIPE_VALIDATE_SIMULATED_CLUSTER_H_
#define RINGPIPE_VALIDATE_SIMULATED_CLUSTER_H_

#include <cstdint>
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
  int rails = 1;  // each carries its part of bytes_per_s
  double bytes_per_s = 12e9;
  // Standard deviations, as parts: of a sample, and of links from each other.
  double noise = 0.02;
  double unlike = 0.005;
  // How many samples are disturbed: halved or worse.
  double disturbed = 0.005;
  int repeats = 3;
  std::uint64_t seed = 1;
  std::vector<Fault> faults = {};
};

// "c00", "c01", ...
std::string HostName(int host);

// All links in company, then suspects and controls alone; by all rails and,
// where there are several, by each.
Measurements MeasureCluster(const ClusterOptions& options,
                            double tolerance = 0.10);

}  // namespace ringpipe::validate::testing

#endif  // RINGPIPE_VALIDATE_SIMULATED_CLUSTER_H_
