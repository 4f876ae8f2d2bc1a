#include "pipeline/transports.h"

#include <cassert>
#include <utility>

namespace ringpipe {

Transports::Transports(std::vector<std::unique_ptr<Transport>> transports,
                       int size)
    : transports_(std::move(transports)),
      connections_(size, nullptr),
      of_peer_(size, -1) {
  assert(transports_.size() <= kMostTransports);
  for (std::size_t i = 0; i < transports_.size(); ++i) {
    for (int peer = 0; peer < size; ++peer) {
      if (Connection* connection = transports_[i]->connection(peer)) {
        connections_[peer] = connection;
        of_peer_[peer] = static_cast<int>(i);
      }
    }
  }
}

Result<UserBuffer> Transports::ReachOf(const UserMemory& memory) const {
  UserBuffer buffer;
  for (std::size_t i = 0; i < transports_.size(); ++i) {
    RINGPIPE_ASSIGN_OR_RETURN(buffer.reached[i],
                              transports_[i]->ReachOf(memory));
  }
  return buffer;
}

std::vector<PlanOptions::Peer> Transports::Peers(
    const UserBuffer& input, const UserBuffer& output) const {
  std::vector<PlanOptions::Peer> peers(connections_.size());
  for (std::size_t peer = 0; peer < peers.size(); ++peer) {
    if (const int transport = of_peer_[peer]; transport >= 0) {
      peers[peer] = {connections_[peer]->abilities(),
                     input.reached[transport].reach,
                     output.reached[transport].reach};
    }
  }
  return peers;
}

}  // namespace ringpipe
