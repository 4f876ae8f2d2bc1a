#ifndef RINGPIPE_PIPELINE_CONNECTION_SET_H_
#define RINGPIPE_PIPELINE_CONNECTION_SET_H_

#include <poll.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "memory_pool/registration.h"
#include "pipeline/peer_connection.h"
#include "verbs/completion_queue.h"
#include "verbs/connection_manager.h"
#include "verbs/memory_region.h"

namespace ringpipe {

// The connections of one rank to all others, with what they share: a completion
// queue for each rail, and the memory of control messages and credit. One
// thread at a time.
class ConnectionSet {
 public:
  struct Options {
    int rank = 0;
    int size = 1;
    // For each peer the rails by which it is reached, one at least.
    std::vector<std::vector<int>> rails_of_peer;
    // How many of the peers are on this host.
    int local_peers = 0;
    // Receives posted on each connection at a time, at least.
    int receives = 0;
    // Of verbs::QueuePair::Options; not set: by the kind of device.
    std::optional<int> timeout;
    std::optional<int> retry_count;
    int service_level = 0;
    int traffic_class = 0;
  };

  // Queue pairs that can receive control messages; no rank is connected yet.
  // kResourceExhausted past the limits of a device, with what to lower.
  static Result<std::unique_ptr<ConnectionSet>> Create(
      std::vector<std::shared_ptr<verbs::ProtectionDomain>> rails,
      const std::shared_ptr<verbs::Device>& allocator, const Options& options);
  ~ConnectionSet();
  ConnectionSet(const ConnectionSet&) = delete;
  ConnectionSet& operator=(const ConnectionSet&) = delete;

  // What `peer` must know to connect to this rank.
  PeerConnection::Address AddressFor(int peer) const;
  // To all peers, given by rank; this rank's own entry is ignored. Ends early
  // where `abort_fd` becomes readable.
  Status Connect(std::span<const PeerConnection::Address> remotes,
                 Deadline deadline, int abort_fd);

  // By rank; empty for this rank itself.
  const std::vector<std::unique_ptr<PeerConnection>>& connections() const {
    return connections_;
  }
  PeerConnection& at(int peer) { return *connections_[peer]; }

  // Fills `out` with completions of all rails; returns how many. kDeviceError
  // where a completion queue has failed.
  Result<int> Poll(std::span<ibv_wc> out);
  // A completion that nobody will handle, of a connection that has failed.
  void Discard(const ibv_wc& completion);
  // "rank 3 through rxe0 (GID ...): IBV_WC_RETRY_EXC_ERR: ...".
  std::string DescribeFailure(const ibv_wc& completion);

  // To sleep: Arm, Poll once more, poll() on descriptors(), ConsumeEvents.
  Status Arm();
  // Completions and asynchronous events of every rail.
  std::span<const pollfd> descriptors() const { return descriptors_; }
  void ConsumeEvents();
  // Takes the devices' asynchronous events. kDeviceError names an event after
  // which communication cannot go on, and the ranks that it concerns. Others
  // are added to `notices`, for the log.
  Status CheckAsyncEvents(std::vector<std::string>* notices);

  // To ERR, and takes what is flushed, until `deadline`: true once the devices
  // hold no memory any more.
  bool Flush(Deadline deadline);

  // "rail 0: mlx5_0 port 1, 100 Gbit/s" and so on: how `peer` is reached.
  std::string DescribeRoute(int peer) const;

 private:
  // Of one connection's queue pairs.
  struct Depths {
    int data_sends = 0;
    int data_receives = 0;
  };

  ConnectionSet(std::vector<std::shared_ptr<verbs::ProtectionDomain>> rails,
                const Options& options)
      : options_(options), rails_(std::move(rails)) {}

  Status CreateMemory(const std::shared_ptr<verbs::Device>& allocator);
  Status CheckLimits(int rail) const;
  Status CreateQueues();
  Status CreateConnection(int peer);
  // What both ends of a rail must have in common.
  static std::uint32_t KindOf(const verbs::DeviceInfo& info);
  Result<std::unique_ptr<verbs::QueuePair>> CreateQueuePair(int rail, int sends,
                                                            int receives);
  Result<Depths> DepthsOn(int rail) const;
  bool IsOn(int rail, int peer) const;
  int PeersOn(int rail) const;
  Status ConnectByManager(std::span<const PeerConnection::Address> remotes,
                          Deadline deadline, int abort_fd);
  std::string RanksOn(int rail) const;
  verbs::Device& device(int rail) const { return *rails_[rail]->device(); }

  const Options options_;
  const std::vector<std::shared_ptr<verbs::ProtectionDomain>> rails_;
  std::vector<Depths> depths_;                                   // by rail
  std::vector<std::shared_ptr<verbs::CompletionQueue>> queues_;  // by rail
  // By rail; empty where queue pairs connect without.
  std::vector<std::unique_ptr<verbs::ConnectionManager>> managers_;
  std::vector<pollfd> descriptors_;

  verbs::Allocation words_memory_;
  Registration words_;
  verbs::Allocation messages_memory_;
  Registration messages_;

  std::vector<std::unique_ptr<PeerConnection>> connections_;
  std::size_t next_poll_ = 0;  // the rail that is polled first
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_CONNECTION_SET_H_
