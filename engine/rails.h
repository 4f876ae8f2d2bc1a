// The devices of one rank, and by which of them it reaches each other rank.
#ifndef RINGPIPE_ENGINE_RAILS_H_
#define RINGPIPE_ENGINE_RAILS_H_

#include <memory>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/status.h"
#include "verbs/device.h"
#include "verbs/library.h"

namespace ringpipe {

struct RankRails {
  std::vector<std::shared_ptr<verbs::Device>> devices;
  // By rank, indices into `devices`; none for a rank that is reached another
  // way.
  std::vector<std::vector<int>> of_peer;
  // By rank, why: "on this host".
  std::vector<std::string> reason;

  // The device whose memory is best for slots and users' buffers: the software
  // device, whose memory peers can reach, where it is among the devices.
  const std::shared_ptr<verbs::Device>& allocator() const;
  // "RoCE", or "software device": how ranks on other hosts are reached; "none"
  // without devices. The same on all ranks, or they could not talk to each
  // other.
  std::string kind() const;
  // "rxe0 port 1: REASON; soft0 (software device): REASON".
  std::string Describe() const;

  // The real ports and their Mbit/s, "mlx5_0:1=200000 mlx5_1:1=100000", for
  // the other ranks.
  std::string Ports() const;
  // Once all ranks' Ports are known, by rank: a peer is reached by the ports
  // whose names both hosts have, for these are on one network where each port
  // has its own. The fastest pair comes first, at both ends alike. Where no
  // name is common, the fastest of one host is joined with the fastest of the
  // other, and so on.
  void PairWith(const std::vector<std::string>& ports_of_rank);
};

// `hosts` are HostIdentity of all ranks. A rank on the same host is reached by
// the software device, others by every real port that Device::Open chooses; a
// real device that is asked for by name is used for all, and
// RINGPIPE_DEVICE=^soft uses real devices for all. Ranks `in_memory` (by rank)
// need none, and where these are all, nothing is opened. `met_at` is
// AddressRequest's; the others are Device::Open's.
Result<RankRails> OpenRails(
    const Environment& environment, int rank,
    const std::vector<std::string>& hosts, const std::vector<bool>& in_memory,
    const Result<std::shared_ptr<const verbs::Library>>& system,
    const std::shared_ptr<const verbs::Library>& soft,
    const std::string& met_at = "",
    const std::string& sysfs_class = verbs::Device::kSysfsClass);

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_RAILS_H_
