// Which ranks of a job are on one host, and which of these share memory.
#ifndef RINGPIPE_ENGINE_HOSTS_H_
#define RINGPIPE_ENGINE_HOSTS_H_

#include <string>
#include <vector>

#include "base/environment.h"
#include "base/status.h"

namespace ringpipe {

// The identity of this host: RINGPIPE_HOST_ID if it is set, otherwise the
// kernel's boot id and the network namespace, as read from `proc`. kUnavailable
// if they cannot be read.
Result<std::string> HostIdentity(const Environment& environment,
                                 const std::string& proc = "/proc");

// Where a rank runs, as it tells the others.
struct Residence {
  std::string host;  // HostIdentity
  // Whether it is ready to share memory with the ranks of its host.
  bool shares_memory = false;
  // The processors on which it may run: one bit for each.
  std::string processors;

  static Result<Residence> Own(const Environment& environment);
  std::string Serialize() const;
  // kMismatch if `text` does not come from Serialize.
  static Result<Residence> Parse(const std::string& text);
};

// The host of all ranks, where they share its memory.
struct CommonHost {
  int ranks = 0;       // 0: not all ranks do
  int processors = 1;  // on which they may run; 0: the kernel does not say
};

// The hosts of a job, as one rank sees them.
struct Hosts {
  std::vector<std::string> of_rank;  // by rank: Residence::host
  std::vector<int> numbers;          // by rank: the first rank of its host
  // By rank: whether this rank reaches it through shared memory. For this rank
  // itself: whether it reaches any other rank so.
  std::vector<bool> in_memory;
  bool all_in_memory = false;
  int ranks_here = 1;  // the number of ranks on this rank's host
  int processors = 1;  // on which these may run; 0: the kernel does not say

  // This rank's host has more ranks than processors for them.
  bool oversubscribed() const { return ranks_here > processors; }
  CommonHost common() const {
    return {all_in_memory ? ranks_here : 0, processors};
  }
};

// `ranks` by rank; `rank`: this one. kInvalidArgument, on all ranks, if some
// ranks of a host share memory and others of that host do not: each kind would
// wait for the other in vain.
Result<Hosts> FindHosts(const std::vector<Residence>& ranks, int rank);
// The same of what Residence::Serialize wrote.
Result<Hosts> ParseHosts(const std::vector<std::string>& ranks, int rank);

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_HOSTS_H_
