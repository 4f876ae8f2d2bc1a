#ifndef RINGPIPE_PIPELINE_HOST_HOST_TRANSPORT_H_
#define RINGPIPE_PIPELINE_HOST_HOST_TRANSPORT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pipeline/connection.h"
#include "pipeline/host/host_connection.h"
#include "pipeline/host/region.h"
#include "pipeline/host/region_exchange.h"

namespace ringpipe {

// The connections of a rank to the others of its host, through shared memory.
class HostTransport final : public Transport {
 public:
  struct Options {
    int rank = 0;
    int size = 1;
    // By rank: whom it connects; not this rank itself.
    std::vector<bool> local;
    // The job's secret, which every rank has from the bootstrap.
    std::string job_key;
    const CallCheck* check = nullptr;  // outlives the transport
  };

  // A region with room for what the connections need.
  static Result<std::shared_ptr<Region>> CreateRegion(int rank, int size);

  // `own` is of CreateRegion, and of nobody else's transport.
  static Result<std::unique_ptr<HostTransport>> Create(
      const Options& options, std::shared_ptr<Region> own);
  ~HostTransport() override;

  std::string_view way() const override { return "host memory"; }
  std::string AddressFor(int peer) const override;
  // All ranks of the host at the same time.
  Status Connect(std::span<const std::string> addresses, Deadline deadline,
                 int abort_fd) override;
  Connection* connection(int peer) override { return connections_[peer].get(); }
  std::string DescribeRoute(int peer) const override;

  // Of memory that the ranks share.
  Result<Reached> ReachOf(const UserMemory& memory) override;
  // Says to the peers where the long ones are.
  MemoryHandle HandleOf(const SlotPool& slots) override;
  PeerSlots SlotsOf(int peer) override;

  Status Begin(std::uint64_t sequence) override;
  void End() override {
    waker_.NotifyAgain();
    overdue_ = reaches_ = false;
  }
  Result<bool> Poll(Connection::Events& events) override;

  Status Arm() override;
  // Of what wakes this rank, and of the processes of its peers.
  std::span<const pollfd> descriptors() const override { return descriptors_; }
  void ConsumeEvents() override;
  // Finds the peers that have died.
  Status CheckAsyncEvents(std::vector<std::string>* notices) override;

  void Tell(const Status& reason, std::uint64_t first) override;
  void TellGpu(std::uint64_t gpu) override { header_.gpu.store(gpu); }
  std::optional<std::uint64_t> GpuOf(int peer) const override;
  // From now on no peer begins to write here.
  void Stop() override;
  // Waits for those that have begun. One that was stopped in the middle may go
  // on whenever it is continued: it gets memory that is not the user's any
  // more.
  bool Flush(Deadline deadline) override;

 private:
  // The ends of a pair of sockets.
  struct Wakes {
    FileDescriptor own;     // what it gets wakes this rank, that sleeps
    FileDescriptor others;  // the peers'
  };

  HostTransport(const Options& options, std::shared_ptr<Region> own,
                Wakes wakes, std::unique_ptr<RegionExchange> exchange);

  const Options options_;
  const std::shared_ptr<Region> own_;
  RegionHeader& header_;
  const Wakes wakes_;
  std::vector<pollfd> descriptors_;  // wakes_.own, then processes
  std::vector<int> processes_;  // whose: peers that are not of this process
  std::unique_ptr<RegionExchange> exchange_;  // until Connect
  const std::string address_;
  Waker waker_;
  bool reaches_ = false;  // memory of the running call's buffers
  bool overdue_ = false;  // waker_ is not settled since before the last Poll
  CallLines lines_;
  // By rank.
  std::vector<std::unique_ptr<HostConnection>> connections_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_HOST_HOST_TRANSPORT_H_
