// The members' connections to their neighbours by rank.
#ifndef RINGPIPE_BOOTSTRAP_CHAIN_H_
#define RINGPIPE_BOOTSTRAP_CHAIN_H_

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>  // before Asio: Boost 1.74 needs it there
#include <vector>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/name_filter.h"
#include "base/status.h"
#include "bootstrap/address.h"
#include "bootstrap/authenticated_connection.h"
#include "bootstrap/endpoint.h"
#include "bootstrap/resolver.h"

namespace ringpipe {

// Rank 1 to 2, 2 to 3, and so on. With them the news of a failure does not
// depend on rank 0, which may be stopped: who dies is missed by both of its
// neighbours, and reasons travel along what is left. (Rank 0 is everybody's
// neighbour already.) The higher rank listens, the lower one connects; both
// prove that they have the job's key. A link is one when both have heard from
// the other; what happens before is nobody's loss. On the io_context's one
// thread.
class Chain {
 public:
  struct Events {
    // A neighbour says why the job has failed.
    std::function<void(const Status& reason)> told;
    // A neighbour leaves before the others.
    std::function<void(const Departure& neighbour)> exits;
    // The connection to a neighbour broke, and it had not said that it leaves.
    std::function<void(int rank, const Status& why)> lost;
    // There is no connection to that neighbour, and there will be none.
    std::function<void(int rank, const std::string& why)> missing;
    // Somebody who is not trusted connected, and was closed.
    std::function<void(const std::string& why)> refused;
    // A connection has sent its last message, or ended.
    std::function<void()> ended;
  };

  // Without a secret the rank below is of this user, as rank 0 is; others are
  // refused before they say anything.
  Chain(boost::asio::io_context* io, int rank, int size, bool has_secret,
        std::chrono::milliseconds tcp_timeout);

  // Before the join. Returns where the rank below will connect to, for all to
  // know; "" where there is none. `own_side` is this end of the connection to
  // rank 0, which is at `root`. Where it is called again the last one counts.
  Result<std::string> Listen(const Address& root, const Endpoint& own_side,
                             const NameFilter& interfaces);

  // After the join. `contact_above` is what Listen returned on the next rank.
  void Connect(const std::string& job_key, const std::string& contact_above,
               const NameFilter& interfaces, Events events);

  // Says so to both neighbours, and then no more.
  void Tell(const Status& reason) { SayLast(AbortNotice{reason}); }
  void Leave() { Leave({static_cast<uint32_t>(rank_)}); }
  void Leave(const Departure& own) { SayLast(own); }
  // Without a word, for which there is no memory.
  void CutOff();
  // Whether the system has what they are told, or they are gone.
  bool has_sent_last() const;
  // Whether they have heard it, or are gone.
  bool closed() const;

 private:
  using Link = std::shared_ptr<AuthenticatedConnection>;
  struct Stranger {
    Link link;
    Clock::time_point since;
  };

  bool has_below() const { return rank_ >= 2; }
  bool has_above() const { return rank_ >= 1 && rank_ + 1 < size_; }
  void WaitToAccept();
  void Accept();
  void Admit(FileDescriptor fd);
  void OnBelowAuthenticated();
  void AcceptLater(std::chrono::milliseconds pause);
  bool MakeRoom();
  void TryAbove();
  void OnConnected();
  void ConnectTo(const std::vector<Endpoint>& above);
  // `mute`: nothing has come back.
  void TryAgain(const std::string& why, bool mute = false);
  Link Start(AuthenticatedConnection::Socket socket, Handshake::Role role,
             int lower_rank, AuthenticatedConnection::Events events);
  // From now on `link` is the connection to that rank; `heard` once it has said
  // something.
  void Adopt(const Link& link, int rank, bool heard);
  void SayLast(const Message& message);

  boost::asio::io_context* const io_;
  const int rank_;
  const int size_;
  const bool has_secret_;
  const std::chrono::milliseconds tcp_timeout_;
  std::string job_key_;
  NameFilter interfaces_;
  Events events_;
  Resolver resolver_;
  std::optional<KeptFromChildren<boost::asio::posix::stream_descriptor>>
      listener_;
  boost::asio::steady_timer accept_pause_;
  std::deque<Stranger> strangers_;  // one may be the rank below; oldest first
  std::vector<Route> routes_above_;
  std::optional<AuthenticatedConnection::Socket> connecting_;
  boost::asio::steady_timer connect_pause_;
  size_t attempts_ = 0;
  Link below_;
  Link above_;
  std::optional<Message> last_words_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_BOOTSTRAP_CHAIN_H_
