// A connection between two ranks of one host, through the memory that they
// share: neither verbs nor, while both are awake, system calls.
#ifndef RINGPIPE_PIPELINE_HOST_HOST_CONNECTION_H_
#define RINGPIPE_PIPELINE_HOST_HOST_CONNECTION_H_

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "pipeline/connection.h"
#include "pipeline/host/layout.h"
#include "pipeline/host/region.h"

namespace ringpipe {

// The first messages of one rank, of which each is the same for all its peers.
class CallLines {
 public:
  CallLines(RegionHeader& own, int size)
      : own_(own), peers_(size), seen_(size) {}
  // Before the first call.
  void Attach(int peer, RegionHeader& header) { peers_[peer] = &header; }

  // This rank begins a call, with each of its readers.
  void Begin(const Digest& digest);
  void AddReader(int peer) { readers_.push_back(peer); }
  // Those of the running call.
  const std::vector<int>& readers() const { return readers_; }

  // Whether the line may be written: nobody has to read what stands there.
  bool CanPublish();
  // With the eager message, or nullptr as long as there is none. Again for each
  // reader, to no effect.
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
  bool HasBegun(int peer, std::uint64_t call);

  RegionHeader& own_;
  std::vector<RegionHeader*> peers_;  // by rank
  std::vector<std::uint64_t> seen_;   // by rank: the latest call that it began
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
  // `lines` and `check` outlive the connection.
  HostConnection(int rank, int peer, std::shared_ptr<Region> own,
                 CallLines& lines, const CallCheck& check);

  // The peer's end, and what wakes it. Before the first call.
  void Attach(std::shared_ptr<Region> peers, FileDescriptor wake);

  Abilities abilities() const override { return kAbilities; }
  static constexpr Abilities kAbilities = {
      .reads_peer = true, .writes_peer = true, .shares_memory = true};

  void Begin(const Call& call) override;
  bool agreed() const override { return agreed_; }
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
  // Whether the peer may be writing into this rank's memory.
  bool PeerWrites() const;
  // The peer, if it sleeps.
  void Wake();

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
  };
  static constexpr std::uint64_t kEager = 1;  // has no number of the stream

  bool HasRoom() const;
  const Inbox::Target* PeersTarget() const;
  Result<bool> Write(const Inbox::Target& target, const Memory& source);
  void Say(std::uint64_t offset, std::uint32_t bytes, bool in_target);
  void Released(std::uint64_t number);
  void Close(std::uint64_t number);
  void NotifyPeer();

  Result<bool> PollCall();
  Result<bool> PollEager(Events& events);
  Result<bool> PollMessages(Events& events);
  Result<bool> PollReleased(Events& events);
  Status Take(Events& events, std::uint64_t number,
              const Inbox::Message& message);
  Status WrongLength(std::uint64_t sent, std::uint64_t expected) const;

  const int rank_;
  CallLines& lines_;
  const CallCheck& check_;
  const std::shared_ptr<Region> own_;
  std::shared_ptr<Region> peers_;
  FileDescriptor wake_;
  RegionHeader* peers_header_ = nullptr;
  Inbox* const in_;       // the peer writes it
  Inbox* out_ = nullptr;  // this end writes it

  // Of the call.
  bool agreed_ = false;
  bool said_ = true;
  bool sends_eagerly_ = false;
  bool expects_eager_ = false;
  Expected eager_;
  bool eager_arrived_ = false;

  bool stalled_ = false;     // the last message did not go
  bool unnotified_ = false;  // the peer may sleep on what was written

  // The streams; by number modulo the window.
  std::array<Sending, kWindow> sends_;
  std::array<Expected, kWindow> expected_;
  std::uint64_t sent_ = 0;
  std::uint64_t oldest_sending_ = 0;  // up to there none is open
  int sending_ = 0;
  std::uint64_t expects_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t oldest_expected_ = 0;  // up to there none is open
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_HOST_HOST_CONNECTION_H_
