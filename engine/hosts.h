// Which ranks of a job are on one host, and which of these share memory.
#ifndef RINGPIPE_ENGINE_HOSTS_H_
#define RINGPIPE_ENGINE_HOSTS_H_

#include <string>
#include <vector>

#include "base/environment.h"
#include "base/status.h"

namespace ringpipe {

// What tells one host from another: RINGPIPE_HOST_ID where it is set, otherwise
// the kernel's boot id and the network namespace, of which `proc` tells.
// kUnavailable where it does not.
Result<std::string> HostIdentity(const Environment& environment,
                                 const std::string& proc = "/proc");

// What a rank tells the others of its place.
struct Residence {
  std::string host;  // HostIdentity
  // With those of its host that do so too.
  bool shares_memory = false;
  std::string processors;  // that it may run on: a bit each

  static Result<Residence> Own(const Environment& environment);
  std::string Serialize() const;
  // kMismatch for what no Serialize gives.
  static Result<Residence> Parse(const std::string& text);
};

// As one rank sees them.
struct Hosts {
  std::vector<std::string> of_rank;
  // By rank: whether it is reached through host memory; this one where any is.
  std::vector<bool> in_memory;
  bool all_in_memory = false;
  int ranks_here = 1;    // on this rank's host
  bool crowded = false;  // they have fewer processors than they are
};

// kInvalidArgument, on all ranks, where some of one host share their memory and
// others do not: they would look for each other in different places.
Result<Hosts> FindHosts(const std::vector<Residence>& ranks, int rank);

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_HOSTS_H_
