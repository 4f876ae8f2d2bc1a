#ifndef RINGPIPE_PIPELINE_PEER_CONNECTION_H_
#define RINGPIPE_PIPELINE_PEER_CONNECTION_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "memory_pool/registration.h"
#include "pipeline/control_channel.h"
#include "pipeline/data_channel.h"
#include "verbs/connection_manager.h"

namespace ringpipe {

// The connection to one peer: a control channel and a data channel for each of
// its rails, with the flow control of both directions. One thread at a time,
// except Fail.
//
// Messages are numbered from 0, as they are sent and as receives for them are
// posted, at both ends alike; the number says by which rail a message goes
// (striping.h).
//
// Credits: grants() counts receives that were posted since the beginning, and
// is written into the peer's credit word. The peer sends while its count of
// sent messages is below that word, so it never meets a receiver that is not
// ready.
class PeerConnection {
 public:
  // What the peer must know, exchanged at bootstrap. Plain data.
  struct Address {
    struct Rail {
      verbs::Endpoint data;
      std::uint32_t word_rkey = 0;
      std::uint32_t megabits_per_second = 0;
      std::uint32_t kind = 0;  // of device: the same at both ends
      verbs::ConnectionManagerAddress manager;
    };
    std::uint64_t word_address = 0;
    verbs::Endpoint control;
    std::uint32_t rails = 0;
    std::array<Rail, kMaxRails> rail;

    // Without the rails that it does not have.
    void AppendTo(std::string& text) const;
    // Takes one from the front of `text`. kMismatch where there is none.
    static Result<Address> TakeFrom(std::string_view& text);
  };

  // One of a connection's rails.
  struct Rail {
    int index = 0;  // among the communicator's
    std::uint32_t word_rkey = 0;
    std::uint32_t megabits_per_second = 0;
    std::uint32_t kind = 0;
    std::unique_ptr<DataChannel> channel;
  };

  PeerConnection(int peer, std::unique_ptr<ControlChannel> control,
                 std::vector<Rail> rails);

  int peer() const { return peer_; }
  // Of this end; without the rails' connection managers.
  Address address() const;
  // Takes over what the peer says of itself. kMismatch where that makes no
  // sense. Rails that only one end has are not used.
  Status SetRemote(const Address& remote);
  // By ibv_modify_qp, where the rails are not iWARP.
  Status Connect(const Address& remote);
  Status Fail();

  ControlChannel& control() { return *control_; }
  // In use, once SetRemote has been called.
  std::vector<Rail>& rails() { return rails_; }
  const std::vector<Rail>& rails() const { return rails_; }

  // --- Sending -------------------------------------------------------------
  // How many messages may be sent now. kInternal where the word holds what a
  // peer that works cannot have written.
  Result<std::uint64_t> Credit();
  // The rail of the next message.
  Rail& next_send_rail() { return rails_[pattern_[sent_ % pattern_.size()]]; }
  // The next message has been added to its rail's channel.
  void CountSend() { ++sent_; }
  // What was added to the channels.
  Status PostSends();
  int sends_outstanding() const;

  Status SendDigest(const Digest& digest);
  // Asks the peer to wake this rank at its next grant. At most one is
  // outstanding; no effect until it was answered.
  Status SendSleep();
  // Probes every queue pair on which nothing is under way that would fail if
  // the peer were gone. (Not on iWARP: there a send has ended when TCP has
  // taken it, and fails when TCP gives up.)
  Status Probe();

  // --- Receiving -----------------------------------------------------------
  Rail& next_receive_rail() {
    return rails_[pattern_[grants_ % pattern_.size()]];
  }
  // A receive has been added to its rail's channel.
  void CountReceive() { ++grants_; }
  // Posts what was added and, as far as there is room, tells the peer. Returns
  // whether it did anything.
  Result<bool> PostReceives();
  Status HandleSleep(std::uint64_t seen_grants);
  void HandleWake() { asleep_ = false; }

  // Whether the devices still have work requests for data, or receives of
  // either kind.
  bool DeviceHoldsMemory() const;

  // --- The running collective ----------------------------------------------
  // A digest of a later collective than the running one, kept until then.
  std::optional<Digest> early_digest;
  bool digest_verified = false;

 private:
  Status TellGrants();

  const int peer_;
  const std::unique_ptr<ControlChannel> control_;
  std::vector<Rail> rails_;
  std::vector<Rail> unused_rails_;
  std::vector<std::uint8_t> pattern_;
  std::uint64_t remote_word_ = 0;
  std::array<std::uint32_t, kMaxRails> remote_rkeys_ = {};

  std::uint64_t sent_ = 0;         // messages
  std::uint64_t seen_grants_ = 0;  // the largest of the credit word
  std::uint64_t grants_ = 0;       // receives posted
  std::uint64_t grants_told_ = 0;  // the last value written to the peer
  bool asleep_ = false;            // a SLEEP of ours is not answered yet
  bool peer_asleep_ = false;       // one of the peer's waits for our next grant
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_PEER_CONNECTION_H_
