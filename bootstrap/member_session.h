// Ranks other than 0: connect, and hear from rank 0 about all the others.
#ifndef RINGPIPE_BOOTSTRAP_MEMBER_SESSION_H_
#define RINGPIPE_BOOTSTRAP_MEMBER_SESSION_H_

#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>  // before Asio: Boost 1.74 needs it there
#include <vector>

#include "bootstrap/address.h"
#include "bootstrap/authenticated_connection.h"
#include "bootstrap/chain.h"
#include "bootstrap/endpoint.h"
#include "bootstrap/resolver.h"
#include "bootstrap/session.h"

namespace ringpipe {

class MemberSession : public Session {
 public:
  explicit MemberSession(const Bootstrap::Options& options);

 protected:
  void StartJoin() override;
  void Contribute(Contribution contribution) override;
  void Ask() override;
  void TellFailure(const Status& reason) override;
  void CutOff() override;
  void StartLeaving(const Departure& own) override;
  bool HasSentLast() const override;
  bool IsAlone() const override;
  Status DescribeTimeout(Gathering gathering) override;

 private:
  // One attempt after the other, until rank 0 is found or the deadline ends
  // the join: rank 0 may start later than this rank.
  void Attempt();
  // Root number `next` and those after it.
  void Resolve(size_t next);
  void TryAll();
  void TryNext();
  void Connect(const Route& route);
  void OnConnected();
  void OnConnectFailed(const std::string& why);
  void RetryLater();
  // Why rank 0 has not been found, as far as this rank knows.
  std::string DescribeSearch() const;

  void OnAuthenticated();
  void OnMessage(const Message& message);
  void OnClosed(const Status& reason);
  void OnGathered(const GatheredBlobs& gathered);
  void OnReplies(const Replies& replies);
  void ConnectChain();
  // A neighbour broke off without a word.
  void OnNeighbourLost(int neighbour, const Status& why);

  // It is useless to go on connecting.
  bool stopped() const { return failed() || leaving(); }

  std::vector<Address> roots_;      // where rank 0 may be, one at least
  std::vector<Endpoint> resolved_;  // of this attempt
  Resolver resolver_;
  boost::asio::steady_timer retry_timer_;
  boost::asio::steady_timer neighbour_timer_;
  std::chrono::milliseconds backoff_;
  std::vector<Route> untried_;  // of this attempt, the next at the back
  Endpoint there_;              // what is being tried
  int attempts_ = 0;
  int connects_ = 0;       // tells a late event from that of the latest connect
  std::string waits_for_;  // what has not come yet, in this attempt
  std::string failures_;   // of this attempt
  std::string last_failure_;  // of the latest attempt that is over
  std::unique_ptr<AuthenticatedConnection::Socket> connecting_;
  std::shared_ptr<AuthenticatedConnection> connection_;
  Chain chain_;
  std::string contact_;  // where that listens; "": nowhere
  bool authenticated_ = false;
  // What has arrived so far of the result of the collective that this rank is
  // in.
  uint64_t sequence_ = 0;
  std::vector<std::string> gathered_;
  std::vector<std::string> replies_;  // as much as has arrived
};

}  // namespace ringpipe

#endif  // RINGPIPE_BOOTSTRAP_MEMBER_SESSION_H_
