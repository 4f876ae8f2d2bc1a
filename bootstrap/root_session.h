// Rank 0: listens, decides who is a rank, gathers and relays.
#ifndef RINGPIPE_BOOTSTRAP_ROOT_SESSION_H_
#define RINGPIPE_BOOTSTRAP_ROOT_SESSION_H_

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>  // before Asio: Boost 1.74 needs it there
#include <vector>

#include "bootstrap/address.h"
#include "bootstrap/authenticated_connection.h"
#include "bootstrap/endpoint.h"
#include "bootstrap/inquiry.h"
#include "bootstrap/resolver.h"
#include "bootstrap/session.h"

namespace ringpipe {

class RootSession : public Session {
 public:
  explicit RootSession(const Bootstrap::Options& options);

 protected:
  void StartJoin() override;
  void Contribute(Contribution contribution) override;
  void Ask() override { AskFor(0); }
  void TellFailure(const Status& reason) override;
  void CutOff() override;
  void StartLeaving(const Departure& own) override;
  bool HasSentLast() const override;
  bool IsAlone() const override;
  Status DescribeTimeout(Gathering gathering) override;

 private:
  struct Listener {
    using Socket = KeptFromChildren<boost::asio::posix::stream_descriptor>;

    explicit Listener(boost::asio::io_context* io) : socket(*io), pause(*io) {}

    Socket socket;
    boost::asio::steady_timer pause;  // while there is no room
  };

  // Somebody who has connected and is not known to be a rank.
  struct Stranger {
    std::shared_ptr<AuthenticatedConnection> connection;
    Clock::time_point since;
  };

  // The collective that is being gathered.
  struct Round {
    uint64_t sequence = 0;
    Gathering gathering = Gathering::kJoin;
    std::vector<std::optional<std::string>> blobs;  // by rank
    int missing = 0;
    bool open = false;  // somebody has contributed
  };

  // On all endpoints, or on the first that is an address of this host.
  static Status Own(Listener::Socket* socket, FileDescriptor fd);
  void ListenOn(const std::vector<Endpoint>& endpoints, bool all);
  void ResolveAndListen(const Address& address);
  // Where it listens, for the other ranks.
  Result<std::vector<std::string>> OwnAddresses() const;
  // Whether the name means this host; for DescribeTimeout.
  void CheckName(const Address& address);
  void WaitToAccept(Listener* listener);
  void Accept(Listener* listener);
  // Tries to accept again after `pause`.
  void AcceptLater(Listener* listener, std::chrono::milliseconds pause);
  // Refuses the oldest stranger if it had its time.
  void MakeRoom();
  void Admit(FileDescriptor fd);
  // Somebody else has the address: fails, with `refusal` or what the other
  // says.
  void AskHolder(const Endpoint& endpoint, const Status& refusal);
  void StopListening();
  // The job is complete, and there is nothing to attack any more.
  void StopAdmitting();

  void OnAuthenticated(AuthenticatedConnection* connection);
  void OnStrangerClosed(AuthenticatedConnection* connection,
                        const Status& reason);
  void OnStrangersMessage(AuthenticatedConnection* connection,
                          const Message& message);
  void OnRanksMessage(int rank, const Message& message);
  void OnRankClosed(int rank, const Status& reason);
  // Why `request` contradicts the job; ok if it does not.
  Status CheckJoin(const JoinRequest& request) const;
  void Rebuff(const std::shared_ptr<AuthenticatedConnection>& connection,
              const Status& reason);
  std::shared_ptr<AuthenticatedConnection> TakeStranger(
      AuthenticatedConnection* connection);

  void TakeContribution(int rank, Contribution contribution);
  void CompleteRound();
  void AskFor(int asker);
  void SendToAll(const Message& message);

  Address root_;  // where it is to listen
  std::vector<std::unique_ptr<Listener>> listeners_;
  Resolver resolver_;
  const size_t most_strangers_;
  bool lacked_descriptors_ = false;
  std::list<Stranger> strangers_;  // the oldest first
  // By rank; null for rank 0 and where nobody has joined. Closed ones stay.
  std::vector<std::shared_ptr<AuthenticatedConnection>> ranks_;
  std::vector<Identity> joined_as_;  // by rank, valid where ranks_ is set
  // Connections that were told why the job failed, until they close.
  std::set<std::shared_ptr<AuthenticatedConnection>> rebuffed_;
  Round round_;
  Inquiry inquiry_;
  std::string name_doubt_;  // why others may not find rank 0 at its name
  Status
      refusal_;  // why it could not listen, while the address' holder is asked
};

}  // namespace ringpipe

#endif  // RINGPIPE_BOOTSTRAP_ROOT_SESSION_H_
