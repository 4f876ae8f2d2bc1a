#ifndef RINGPIPE_PIPELINE_RAILS_RAIL_TRANSPORT_H_
#define RINGPIPE_PIPELINE_RAILS_RAIL_TRANSPORT_H_

#include <poll.h>

#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "memory_pool/registered_memory.h"
#include "memory_pool/registration.h"
#include "pipeline/connection.h"
#include "pipeline/rails/rail_connection.h"
#include "verbs/completion_queue.h"
#include "verbs/connection_manager.h"
#include "verbs/memory_region.h"

namespace ringpipe {

// The connections of one rank to others over RDMA verbs, with what they share:
// a completion queue for each rail, and the memory of control messages and
// credit. One thread at a time.
class RailTransport final : public Transport {
 public:
  struct Options {
    int rank = 0;
    int size = 1;
    // For each peer the rails by which it is reached; none: another way.
    std::vector<std::vector<int>> rails_of_peer;
    // By rank: why so, for DescribeRoute; may be empty.
    std::vector<std::string> reasons;
    // How many of the peers are on this host.
    int local_peers = 0;
    // Receives posted on each connection at a time, where that is not too many.
    int receives = 0;
    // Of verbs::QueuePair::Options; not set: by the kind of device.
    std::optional<int> timeout;
    std::optional<int> retry_count;
    int service_level = 0;
    int traffic_class = 0;
    // What users have registered; nullptr: nothing.
    const RegisteredMemory* memory = nullptr;
    // Whether to register a buffer that a call reads, for that call: where that
    // costs next to nothing, because no rail pins memory.
    bool registers_buffers = false;
    // Messages of at least so many bytes, of other memory, are registered each
    // for itself; by default none.
    std::uint64_t registered_sends_from =
        std::numeric_limits<std::uint64_t>::max();
    const CallCheck* check = nullptr;
    // The pointers' targets outlive the transport.
  };

  // Queue pairs that can receive control messages; no rank is connected yet.
  // kResourceExhausted past the limits of a device, with what to lower.
  static Result<std::unique_ptr<RailTransport>> Create(
      std::vector<std::shared_ptr<verbs::ProtectionDomain>> rails,
      const std::shared_ptr<verbs::Device>& allocator, const Options& options);
  ~RailTransport() override;
  RailTransport(const RailTransport&) = delete;
  RailTransport& operator=(const RailTransport&) = delete;

  std::string_view way() const override { return "rails"; }
  std::string AddressFor(int peer) const override;
  Status Connect(std::span<const std::string> addresses, Deadline deadline,
                 int abort_fd) override;
  RailConnection* connection(int peer) override {
    return connections_[peer].get();
  }
  std::string DescribeRoute(int peer) const override;

  Result<Reached> ReachOf(const UserMemory& memory) override;
  MemoryHandle HandleOf(const SlotPool& slots) override {
    return &slots.lkeys();
  }
  Result<MemoryHandle> Register(const Memory& piece) override;
  Status Deregister(MemoryHandle registered) override;

  Status Begin(std::uint64_t sequence) override;
  void End() override;
  Result<bool> Poll(Connection::Events& events) override;
  Status Arm() override;
  // Completions and asynchronous events of every rail.
  std::span<const pollfd> descriptors() const override { return descriptors_; }
  void ConsumeEvents() override;
  Status CheckAsyncEvents(std::vector<std::string>* notices) override;
  // Until the peers' devices have what was sent by control messages, of which
  // most raise no completion. What comes meanwhile is lost.
  void FinishSending(Deadline deadline) override;
  // All queue pairs to ERR.
  void Stop() override;
  // Takes what is flushed, and deregisters what was registered for the call.
  bool Flush(Deadline deadline) override;

 private:
  // Of one connection's queue pairs.
  struct Depths {
    int data_sends = 0;
    int data_receives = 0;
  };

  RailTransport(std::vector<std::shared_ptr<verbs::ProtectionDomain>> rails,
                const Options& options)
      : options_(options), rails_(std::move(rails)) {}

  Status CreateMemory(const std::shared_ptr<verbs::Device>& allocator);
  Status CheckLimits(int rail) const;
  Status CreateQueues();
  Status CreateConnection(int peer);
  // What both ends of a rail must have in common.
  static std::uint32_t KindOf(const verbs::DeviceInfo& info);
  Result<std::unique_ptr<verbs::QueuePair>> CreateQueuePair(
      int rail, int sends, int receives, int pieces,
      int inline_bytes = kInlineBytes);
  // With room for a header inline.
  Result<std::unique_ptr<verbs::QueuePair>> CreateControlQueuePair(int rail);
  Result<Depths> DepthsOn(int rail) const;
  bool IsOn(int rail, int peer) const;
  int PeersOn(int rail) const;
  Status ConnectByManager(const std::vector<RailConnection::Address>& remotes,
                          Deadline deadline, int abort_fd);
  // Whose queue pair on the rail has this number; 0: nobody's.
  RailConnection* OwnerOf(int rail, std::uint32_t qp_number);
  // "rank(s) 0, 2", to which it goes.
  std::string RanksOn(int rail) const;
  bool DevicesHoldMemory() const;
  // Until the devices hold no memory any more; whether they do so before
  // `deadline`.
  bool TakeFlushed(Deadline deadline);
  // Whether devices have let go of all that was registered for calls.
  bool DeregisterAll();
  // Fills completions_ from all rails; returns how many. kDeviceError where a
  // completion queue has failed.
  Result<int> PollQueues();
  // The first `count` of completions_; Discards those behind a failure.
  Status HandleAll(int count, Connection::Events& events, bool& happened);
  // Sets `happened` unless the completion only answers a probe.
  Status Handle(const ibv_wc& completion, Connection::Events& events,
                bool& happened);
  // A completion that nobody will handle, of a connection that has failed.
  void Discard(const ibv_wc& completion);
  // Takes a failed completion, whose connection's peer may have gone.
  Status Failed(const ibv_wc& completion, bool& happened);
  // The error that a failed completion means.
  Status FailureOf(const ibv_wc& completion) const;
  const verbs::QueuePair& QueuePairOf(const ibv_wc& completion) const;
  verbs::Device& device(int rail) const { return *rails_[rail]->device(); }

  const Options options_;
  const std::vector<std::shared_ptr<verbs::ProtectionDomain>> rails_;
  std::vector<Depths> depths_;                                   // by rail
  std::vector<std::shared_ptr<verbs::CompletionQueue>> queues_;  // by rail
  // By rail; empty where queue pairs connect without.
  std::vector<std::unique_ptr<verbs::ConnectionManager>> managers_;
  std::vector<pollfd> descriptors_;

  Allocation words_memory_;
  Registration words_;
  Allocation messages_memory_;
  Registration messages_;

  // The keys of a buffer of the running call, and its registration where that
  // is for this call alone: of what it reads, and of what it writes.
  struct CallBuffer {
    RailKeys lkeys = {};
    Registration registration;
  };
  std::array<CallBuffer, 2> buffers_;
  bool reaches_ = false;             // any of them
  std::deque<Registration> pieces_;  // of Register; empty ones are free
  bool held_ = false;                // a device did not let go of one of these
  bool stopped_ = false;             // all queue pairs are in ERR

  std::vector<std::unique_ptr<RailConnection>> connections_;
  std::size_t next_poll_ = 0;  // the rail that is polled first
  std::array<ibv_wc, 32> completions_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_RAILS_RAIL_TRANSPORT_H_
