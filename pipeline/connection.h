// How ranks reach each other, as the executor sees it: a Connection is one
// peer, a Transport all connections of a rank that go the same way.
#ifndef RINGPIPE_PIPELINE_CONNECTION_H_
#define RINGPIPE_PIPELINE_CONNECTION_H_

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "memory_pool/slot_pool.h"
#include "pipeline/abilities.h"
#include "pipeline/call_check.h"
#include "pipeline/instance.h"
#include "pipeline/memory.h"

namespace ringpipe {

// Ordered streams of messages, one each way, between this rank and one peer.
// The n-th message that one end sends is the n-th that the other expects.
// Whatever that takes is below this interface: whether both make the same call,
// flow control, which way the bytes go.
//
// A call begins with a first message each way, on every connection that its
// plan names, and ends only when all of these have arrived. So an end is at
// most one call ahead of the other.
class Connection {
 public:
  // What happens on a connection, in any order: a later message may arrive
  // before an earlier one and, unless it is eager, before the peer's first.
  class Events {
   public:
    // The message for `instance` has arrived: `bytes` at `data`, which is its
    // target; where it has none, memory that may be read until Release.
    virtual Status Arrived(Instance instance, const std::byte* data,
                           std::uint32_t bytes) = 0;
    // The source of `instance` may be overwritten.
    virtual Status Sent(Instance instance) = 0;

   protected:
    ~Events() = default;
  };

  explicit Connection(int peer) : peer_(peer) {}
  virtual ~Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int peer() const { return peer_; }
  virtual Abilities abilities() const = 0;

  // --- One call ---
  struct Call {
    const Digest* digest = nullptr;
    // Whether it has messages to the peer, and from it.
    bool sends = false;
    bool receives = false;
    // The first of them, each way, is eager: the same at both ends.
    bool eager = false;
  };
  virtual void Begin(const Call& call) = 0;
  // Whether both have said that they make the same call.
  virtual bool agreed() const = 0;

  // Whether there is room for one more message. kInternal where the peer breaks
  // the rules.
  virtual bool CanExpect() const = 0;
  virtual Result<bool> CanSend() = 0;
  // The next message from the peer goes to `target`, which may be written from
  // now on. Where the connection reads the peer, `target` may be nullptr: the
  // message stays where it is.
  virtual void Expect(Instance instance, const Memory& target) = 0;
  // Of an eager message the source is one piece; of others it is no more than
  // Abilities::pieces. Whether it is free at once; otherwise Sent comes.
  virtual Result<bool> Send(Instance instance, Pieces source) = 0;
  // What has arrived without a target was read.
  virtual Status Release(Instance instance) = 0;
  // Passes on what was expected and sent, and may take what has come. Returns
  // whether there was anything.
  virtual Result<bool> Progress(Events& events) = 0;

  // Whether the first message waits for its eager payload; Announce sends it
  // without.
  virtual bool holds_back() const = 0;
  virtual Status Announce() = 0;

  // --- Waiting ---

  // Whether a message was sent whose source is not free yet.
  virtual bool sending() const = 0;
  // This rank is about to sleep until something happens; `has_message`: one is
  // ready for Send.
  virtual Status PrepareToSleep(bool has_message) = 0;
  // Finds out whether the peer is still there; the answer comes from Poll, for
  // failure().
  virtual Status Probe() = 0;
  // Why nothing more comes from the peer, nor is taken by it: it has gone, or
  // has ended the running call. What it sent before is still there for Poll.
  virtual Status failure() const { return Status::Ok(); }
  // How long the reason that the peer has told for that may take to be heard:
  // none where it did not answer; nullopt: as usual.
  virtual std::optional<std::chrono::milliseconds> reason_patience() const {
    return std::nullopt;
  }

 private:
  const int peer_;
};

// One thread at a time.
class Transport {
 public:
  virtual ~Transport() = default;

  // "rails": the same for the same way on all ranks, which need not all have
  // it.
  virtual std::string_view way() const = 0;

  // --- To set up ---

  // What `peer` must know to connect to this rank; empty for a peer that is
  // reached another way.
  virtual std::string AddressFor(int peer) const = 0;
  // To all peers, given the addresses that they have for this rank. Ends early
  // where `abort_fd` becomes readable.
  virtual Status Connect(std::span<const std::string> addresses,
                         Deadline deadline, int abort_fd) = 0;
  // nullptr for this rank itself and for peers that are reached another way.
  virtual Connection* connection(int peer) = 0;
  // "mlx5_0 (GID ...) to GID ... at 100 Gbit/s: the only active port": how
  // `peer` is reached, and why, once all ranks have connected.
  virtual std::string DescribeRoute(int peer) const = 0;

  // --- Memory ---

  // What its connections can do with a buffer of the next call, before that
  // begins: once for what it reads, once for what it writes. Holds until End.
  virtual Result<Reached> ReachOf(const UserMemory& memory) = 0;
  // Of the slots that are in use, as long as these are.
  virtual MemoryHandle HandleOf(const SlotPool& slots) = 0;
  // The long slots of a peer, as this process has them mapped as long as
  // somebody holds `mapping`: for a device of this rank to read. Empty: the
  // peer has used none yet, is reached another way, or is a thread of this
  // process, whose own device has them.
  struct PeerSlots {
    std::shared_ptr<const void> mapping;
    std::span<std::byte> memory;
  };
  virtual PeerSlots SlotsOf(int /*peer*/) { return {}; }
  // A piece of memory of Sends::kAfterRegistering may be sent from with what
  // this returns, and no longer after Deregister, which fails where a device
  // still uses it. Where there is no such memory, nobody calls them.
  virtual Result<MemoryHandle> Register(const Memory& /*piece*/) {
    return MemoryHandle();
  }
  virtual Status Deregister(MemoryHandle /*registered*/) {
    return Status::Ok();
  }

  // --- To run ---

  // This rank begins a call, whose connections have begun it: none of this
  // transport's, perhaps. What came too early is of this call, perhaps:
  // kMismatch where it is of another one.
  virtual Status Begin(std::uint64_t /*sequence*/) { return Status::Ok(); }
  // It has ended it, with an error perhaps, or has not begun it after ReachOf.
  virtual void End() {}
  // Takes what has happened. Returns whether anything has, but for answers to
  // Probe: whatever Progress could not pass on yet, and the peer's agreement,
  // wait for that alone. The first error of `events`, or of a connection whose
  // peer has not gone, is returned, and ends the transport's use.
  virtual Result<bool> Poll(Connection::Events& events) = 0;

  // To sleep: Arm, Poll once more, poll() on descriptors(), ConsumeEvents.
  virtual Status Arm() = 0;
  virtual std::span<const pollfd> descriptors() const = 0;
  virtual void ConsumeEvents() = 0;
  // kDeviceError names an event of a device after which communication cannot go
  // on, and the ranks that it concerns. Others are added to `notices`. What
  // ends one connection alone is its failure() from then on; peers that have
  // died are told by descriptors() no more.
  virtual Status CheckAsyncEvents(std::vector<std::string>* notices) = 0;

  // Why this rank ends the communicator, for calls from number `first` on: for
  // peers that can read it without anybody's help. The first reason counts. Any
  // thread.
  virtual void Tell(const Status& /*reason*/, std::uint64_t /*first*/) {}
  // Tells peers which GPU this rank uses (Accelerator::Gpus; not 0), where they
  // can read it without anybody's help. Between calls.
  virtual void TellGpu(std::uint64_t /*gpu*/) {}
  // What `peer` has told so; 0: nothing yet; nullopt: peers tell nothing by
  // this way. Between calls.
  virtual std::optional<std::uint64_t> GpuOf(int /*peer*/) const {
    return std::nullopt;
  }
  // Waits until whatever this rank has said is out of its process, so that it
  // may exit. Between calls.
  virtual void FinishSending(Deadline /*deadline*/) {}
  // Ends all connections: from now on nothing is sent and taken any more.
  virtual void Stop() = 0;
  // After Stop: true once nobody uses the user's memory any more; false at
  // `deadline`, and then somebody may, as long as this process lives.
  virtual bool Flush(Deadline deadline) = 0;
};

// A message from `peer` of another length than its target has room for.
inline Status WrongLength(int peer, std::uint64_t sent,
                          std::uint64_t expected) {
  return {StatusCode::kInternal,
          "rank " + std::to_string(peer) + " sent " + std::to_string(sent) +
              " bytes where the schedule has " + std::to_string(expected)};
}

// Another way to some peers than that which the engine would choose.
class TransportFactory {
 public:
  virtual ~TransportFactory() = default;

  // The connections of `rank` to the peers that are reached so; `check`
  // outlives them. Any thread.
  virtual std::unique_ptr<Transport> Create(int rank,
                                            const CallCheck& check) = 0;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_CONNECTION_H_
