// Who takes part in a validation: each rank's host, process and ports.
#ifndef RINGPIPE_VALIDATE_IDENTITY_H_
#define RINGPIPE_VALIDATE_IDENTITY_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "validate/measurements.h"

namespace ringpipe::validate {

// What a rank tells the others of itself.
struct Identity {
  std::string host_name;  // as the host calls itself
  std::string host_id;    // the same for the ranks of a host, and for no other
  int pid = 0;
  std::string device;  // Communicator::device
  // On which it may run: one bit for each. Empty: not known.
  std::vector<std::uint8_t> processors;

  std::string Serialize() const;
  static Result<Identity> Parse(std::string_view text);
};

// By rank. Hosts with one name get a number: "node#1", "node#2". The cores of a
// host are all that its ranks may run on, also where each is bound to its own.
std::vector<Rank> NameRanks(const std::vector<Identity>& identities);

// Of Communicator::device: "host memory", "software device" or "RDMA".
std::string WayOf(std::string_view device);
// The RDMA ports in it: "mlx5_0:1".
std::vector<std::string> RailsOf(std::string_view device);

// The rank that is gone or silent, by a communicator's failure; -1: it names
// none.
int LostRank(const Status& failure);

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_IDENTITY_H_
