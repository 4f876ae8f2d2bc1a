#ifndef RINGPIPE_PIPELINE_RAILS_RAIL_CONNECTION_H_
#define RINGPIPE_PIPELINE_RAILS_RAIL_CONNECTION_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "memory_pool/registration.h"
#include "pipeline/call_check.h"
#include "pipeline/connection.h"
#include "pipeline/fifo.h"
#include "pipeline/rails/control_channel.h"
#include "pipeline/rails/data_channel.h"
#include "verbs/connection_manager.h"

namespace ringpipe {

// The connection to one peer over RDMA verbs: a control channel and a data
// channel for each of its rails, with the flow control of both directions. One
// thread at a time, except Fail.
//
// Messages are numbered from 0, as they are sent and as receives for them are
// posted, at both ends alike; the number says by which rail a message goes
// (striping.h). Eager messages are not among them: they go with the control
// channel's.
//
// Credits: credits_ counts receives that were posted since the beginning; it
// goes with the first message of a call, and later into the peer's credit word.
// The peer sends while its count of sent messages is below, so it never meets a
// receiver that is not ready.
class RailConnection final : public Connection {
 public:
  // What the peer must know, exchanged at bootstrap. Plain data.
  struct Address {
    struct RailAddress {
      verbs::Endpoint data;
      std::uint32_t word_rkey = 0;
      std::uint32_t megabits_per_second = 0;
      std::uint32_t kind = 0;  // of device: the same at both ends
      verbs::ConnectionManagerAddress manager;
    };
    std::uint64_t word_address = 0;
    verbs::Endpoint control;
    std::uint32_t rails = 0;
    std::array<RailAddress, kMaxRails> rail;

    // Without the rails that it does not have.
    std::string Serialize() const;
    // kMismatch where the text is none.
    static Result<Address> Parse(std::string_view text);
  };

  // One of a connection's rails.
  struct Rail {
    int index = 0;  // among the communicator's
    Address::RailAddress own;
    std::unique_ptr<DataChannel> channel;
  };

  // `nothing` is a byte of registered memory; not every device takes a receive
  // of none. `check` outlives the connection.
  RailConnection(int peer, std::unique_ptr<ControlChannel> control,
                 std::vector<Rail> rails, const Memory& nothing,
                 const CallCheck& check);

  // --- To set up ---

  // Of this end.
  Address address() const;
  // Takes over what the peer says of itself. kMismatch where that makes no
  // sense. Rails that only one end has are not used.
  Status SetRemote(const Address& remote);
  // By ibv_modify_qp, where the rails are not iWARP.
  Status Connect(const Address& remote);
  Status Fail();

  // Whether the queue pair of this number on a rail of the communicator's is
  // one of this connection's.
  bool Has(int rail, std::uint32_t qp_number) const;

  ControlChannel& control() { return *control_; }
  // In use, once SetRemote has been called.
  std::vector<Rail>& rails() { return rails_; }
  const std::vector<Rail>& rails() const { return rails_; }

  // --- A Connection
  Abilities abilities() const override;
  void Begin(const Call& call) override;
  bool agreed() const override { return agreed_ && call_sent_; }
  bool CanExpect() const override;
  Result<bool> CanSend() override;
  void Expect(Instance instance, const Memory& target) override;
  Result<bool> Send(Instance instance, Pieces source) override;
  Status Release(Instance /*instance*/) override { return Status::Ok(); }
  Result<bool> Progress(Events& events) override;
  bool holds_back() const override { return !call_sent_ && sends_eagerly_; }
  Status Announce() override;
  bool sending() const override { return lost_send_ || HasSendsOut(); }
  // Asks a starved rank's peer to wake it at its next credit. At most one SLEEP
  // is outstanding; no effect until it was answered.
  Status PrepareToSleep(bool has_message) override;
  // Probes every queue pair on which nothing is under way that would fail if
  // the peer were gone. (Not on iWARP: there a send has ended when TCP has
  // taken it, and fails when TCP gives up.)
  Status Probe() override;
  Status failure() const override { return failure_; }
  std::optional<std::chrono::milliseconds> reason_patience() const override {
    return reason_patience_;
  }

  // A queue pair has failed, as it does when the peer goes. The first reason
  // counts.
  void Lost(const Status& reason,
            std::optional<std::chrono::milliseconds> reason_patience = {}) {
    if (failure_.ok()) {
      failure_ = reason;
      reason_patience_ = reason_patience;
    }
  }
  // A message of the running call has not been taken, and never will be.
  void LoseSend() { lost_send_ = true; }

  // --- Completions
  Status ControlReceived(int buffer, std::uint32_t bytes);
  // Takes what came before this rank had got so far, if it has now.
  Status TakeEarly();
  // Whether the devices still have work requests for data, or receives of
  // either kind.
  bool DeviceHoldsMemory() const;

 private:
  // A kCall whose buffer is not posted anew yet.
  struct Early {
    ControlHeader header;
    int buffer = 0;
    std::uint32_t payload_bytes = 0;
  };

  DataChannel& Striped(std::uint64_t message) const {
    return *rails_[pattern_[message % pattern_.size()]].channel;
  }
  bool HasSendsOut() const;
  Result<std::uint64_t> Credit();
  Status SendCall(const Memory* eager);
  Result<bool> DeliverEager(Events& events);
  Result<bool> PostReceives();
  Status TellCredits();
  Status HandleSleep(std::uint64_t seen_credits);

  const std::unique_ptr<ControlChannel> control_;
  std::vector<Rail> rails_;
  const Memory nothing_;
  const CallCheck& check_;
  std::vector<std::uint8_t> pattern_;
  std::uint64_t remote_word_ = 0;
  std::array<std::uint32_t, kMaxRails> remote_rkeys_ = {};

  Status failure_;
  std::optional<std::chrono::milliseconds> reason_patience_;

  // The running call.
  Digest digest_;
  bool call_sent_ = true;
  bool agreed_ = false;
  bool lost_send_ = false;
  bool sends_eagerly_ = false;  // an eager message is still to be sent
  bool expects_eager_ = false;  // is still to be expected
  bool takes_eager_ = false;    // has still to come
  // The eager message of the peer: where it goes, what came.
  struct Expected {
    Instance instance;
    Memory target;
  };
  std::optional<Expected> expected_;
  std::optional<Early> eager_;
  Fifo<Early> early_;

  std::uint64_t sent_ = 0;          // messages, without eager ones
  std::uint64_t seen_credits_ = 0;  // the largest that the peer told
  std::uint64_t credits_ = 0;       // receives posted
  std::uint64_t credits_told_ = 0;
  bool asleep_ = false;       // a SLEEP of ours is not answered yet
  bool peer_asleep_ = false;  // one of the peer's waits for our next credit
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_RAILS_RAIL_CONNECTION_H_
