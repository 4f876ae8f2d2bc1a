#ifndef RINGPIPE_PIPELINE_TRANSPORTS_H_
#define RINGPIPE_PIPELINE_TRANSPORTS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "pipeline/connection.h"
#include "pipeline/operation.h"
#include "pipeline/plan.h"

namespace ringpipe {

// The transports of one rank: together they have a connection to every other
// rank. One thread at a time.
class Transports {
 public:
  Transports() = default;
  // At most kMostTransports, of a job of `size` ranks.
  Transports(std::vector<std::unique_ptr<Transport>> transports, int size);

  std::span<const std::unique_ptr<Transport>> all() const {
    return transports_;
  }
  auto begin() const { return transports_.begin(); }
  auto end() const { return transports_.end(); }

  // Of the job.
  int ranks() const { return static_cast<int>(connections_.size()); }
  // nullptr for this rank itself.
  Connection* connection(int peer) const { return connections_[peer]; }
  // Which of them has it; -1 for this rank itself.
  int Of(int peer) const { return of_peer_[peer]; }
  Transport& TransportTo(int peer) const {
    return *transports_[of_peer_[peer]];
  }

  // What each can do with the buffer, as Transport::ReachOf.
  Result<UserBuffer> ReachOf(const UserMemory& memory) const;
  // By rank: what a plan for a call with these buffers is compiled against.
  std::vector<PlanOptions::Peer> Peers(const UserBuffer& input,
                                       const UserBuffer& output) const;

 private:
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<Connection*> connections_;  // by rank
  std::vector<int> of_peer_;              // by rank
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_TRANSPORTS_H_
