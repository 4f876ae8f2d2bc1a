// A connection between two ranks of one host, through the memory that they
// share: neither verbs nor, while both are awake, system calls.
#ifndef RINGPIPE_PIPELINE_HOST_HOST_CONNECTION_H_
#define RINGPIPE_PIPELINE_HOST_HOST_CONNECTION_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pipeline/connection.h"
#include "pipeline/host/layout.h"
#include "pipeline/host/process_memory.h"
#include "pipeline/host/region.h"
#include "pipeline/host/region_trade.h"
#include "pipeline/host/sleeper.h"

namespace ringpipe {

// The first messages of one rank, of which each is the same for all its peers.
class CallLines {
 public:
  // `waker` outlives this object.
  CallLines(RegionHeader& own, Waker& waker, int size)
      : own_(own), waker_(waker), seen_(size) {}
  Waker& waker() { return waker_; }

  // This rank begins a call, with each of its readers; and then, also where
  // there are none, once.
  void AddReader(int peer, const Digest& digest);
  void Begin(std::uint64_t sequence);
  // Those of the running call.
  const std::vector<int>& readers() const { return readers_; }

  // Whether the line may be written: nobody has to read what stands there.
  bool CanPublish();
  // With the eager message, or nullptr as long as there is none: to all
  // readers. Again for each of them, to no effect.
  void Publish(const Memory* payload);

  // The peer has begun the same call.
  void Saw(int peer) { seen_[peer] = call_; }

  // As in CallLine.
  std::uint64_t call() const { return call_; }
  std::uint64_t check() const { return check_; }

 private:
  struct Place {
    std::uint64_t call = 0;
    std::vector<int> readers;
  };

  static std::uint64_t CheckOf(const Digest& digest);
  void GoTo(std::uint64_t sequence);
  bool HasBegun(int peer, std::uint64_t call);
  void Written(const std::vector<int>& readers);

  RegionHeader& own_;
  Waker& waker_;
  std::vector<std::uint64_t> seen_;  // by rank: the latest call that it began
  std::array<Place, 2> places_;
  std::vector<int> readers_;
  Digest digest_;
  std::uint64_t call_ = 0;
  std::uint64_t check_ = 0;
  bool published_ = true;
  bool has_payload_ = false;
};

class HostConnection final : public Connection {
 public:
  // `lines` and `check` outlive the connection. `claims`: the ranks have a core
  // each, so that lines of slots go back and forth between cores.
  HostConnection(int rank, int peer, std::shared_ptr<Region> own,
                 CallLines& lines, const CallCheck& check, bool claims);

  // The peer's end. Before the first call. `name`: Grant::name of the process
  // whose it is to be.
  void Attach(RegionPeer peer, std::string_view name);
  bool attached() const { return out_ != nullptr; }

  Abilities abilities() const override { return kAbilities; }
  static constexpr Abilities kAbilities = {.reads_peer = true,
                                           .writes_peer = true,
                                           .shares_memory = true,
                                           .eager_bytes = kHostEagerBytes,
                                           .eager_to_all = true};

  void Begin(const Call& call) override;
  // A call does not end before this rank has said that it makes it: peers wait
  // for that.
  bool agreed() const override { return agreed_ && said_; }
  bool CanExpect() const override;
  Result<bool> CanSend() override;
  void Expect(Instance instance, const Memory& target) override;
  Result<bool> Send(Instance instance, const Memory& source) override;
  Status Release(Instance instance) override;
  Result<bool> Push(Events& events) override;
  bool holds_back() const override { return !said_ && sends_eagerly_; }
  Status Announce() override;
  bool sending() const override { return sending_ > 0; }
  // Whatever happens wakes.
  Status PrepareToSleep(bool /*has_message*/) override { return Status::Ok(); }
  Status Probe() override { return Status::Ok(); }

  // Whether anything has happened.
  Result<bool> Poll(Events& events);
  // Why the peer has ended the communicator, if it has.
  Status PeersFailure() const;
  const RegionPeer& peers_end() const { return ends_; }
  // Whether both ends reach each other's private memory, once both are
  // attached.
  bool reaches_private() const;
  // Whether the peer may be writing into this rank's memory.
  bool PeerWrites() const;
  // Takes back what it might write, so that it no longer can.
  Status TakeBack();
  // Any thread.
  const Sleeper& sleeper() const { return peers_end_; }

 private:
  // A message that the peer has to read, and its number; 0: none.
  struct Sending {
    Instance instance;
    std::uint64_t number = 0;
  };
  // One that is expected, until it was read.
  struct Expected {
    Instance instance;
    Memory target;
    std::uint64_t number = 0;
    // What it was copied to, where it lay in the peer's private memory.
    std::vector<std::byte> copy = {};
    // Where it lies in the peer's slot, to be claimed when it was read.
    std::span<std::byte> slot = {};
  };
  static constexpr std::uint64_t kEager = 1;  // has no number of the stream

  bool TellsCallAlone() const { return !said_ && !sends_eagerly_; }
  bool TellCall();
  bool HasRoom() const;
  std::pair<Space, std::uint64_t> AddressOf(const Memory& memory) const;
  const Inbox::Target* PeersTarget() const;
  Result<bool> Write(Space space, const Inbox::Target& target,
                     const Memory& source);
  Status WriteToProcess(std::uint64_t address, const Memory& source);
  void Say(Space space, std::uint64_t address, std::uint32_t bytes);
  void GiveBack(std::uint64_t number);
  void Released(std::uint64_t number);
  void Close(std::uint64_t number);
  Status CheckWhatWasRead() const;
  Status HasEnded() const;
  Status CannotReach(int error) const;

  Result<bool> PollCall();
  Result<bool> PollEager(Events& events);
  Result<bool> PollMessages(Events& events);
  Result<bool> PollReleased(Events& events);
  Status Take(Events& events, std::uint64_t number,
              const Inbox::Message& message);
  Status TakeFromRegion(Events& events, std::uint64_t number, Space space,
                        std::uint64_t offset, std::uint32_t bytes);
  Status TakeFromProcess(Events& events, std::uint64_t number,
                         std::uint64_t address, std::uint32_t bytes);
  ProcessMemory::Piece GrantPiece();
  int ReadGrant();
  bool IsPeersGrant() const;
  Status CheckGrant(std::uint64_t address, std::uint64_t bytes) const;
  Status WrongLength(std::uint64_t sent, std::uint64_t expected) const;

  const int rank_;
  const bool claims_;
  CallLines& lines_;
  const CallCheck& check_;
  const std::shared_ptr<Region> own_;
  RegionPeer ends_;  // the peer's
  ProcessMemory peers_process_;
  std::string peers_name_;
  bool reaches_peer_ = false;  // its private memory
  Grant grant_;                // as last read
  Sleeper peers_end_;
  Inbox* const in_;       // the peer writes it
  Inbox* out_ = nullptr;  // this end writes it

  // Of the call.
  bool agreed_ = false;
  bool said_ = true;
  bool sends_eagerly_ = false;
  bool expects_eager_ = false;
  Expected eager_;
  bool eager_arrived_ = false;

  bool stalled_ = false;  // the last message did not go

  // The streams; by number modulo the window.
  std::array<Sending, kWindow> sends_;
  std::array<Expected, kWindow> expected_;
  std::uint64_t sent_ = 0;
  std::uint64_t oldest_sending_ = 0;  // up to there none is open
  int sending_ = 0;
  std::uint64_t expects_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t oldest_expected_ = 0;  // up to there none is open
  std::vector<std::vector<std::byte>> spare_copies_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_HOST_HOST_CONNECTION_H_
