#include "bootstrap/member_session.h"

#include <algorithm>
#include <boost/asio/error.hpp>
#include <cerrno>
#include <utility>

namespace ringpipe {
namespace {

using boost::system::error_code;

// For an endpoint, or a source, that does not answer while there are others.
// TCP sends its first packet again after 1 s.
constexpr std::chrono::milliseconds kPatienceWithOneOfSeveral(2000);
constexpr auto kFirstBackoff = std::chrono::milliseconds(10);
constexpr auto kLongestBackoff = std::chrono::milliseconds(300);
// Before the loss of a neighbour is its death.
constexpr auto kWordOfRankZero = std::chrono::milliseconds(150);

}  // namespace

MemberSession::MemberSession(const Bootstrap::Options& options)
    : Session(options),
      resolver_(&io_),
      retry_timer_(io_),
      neighbour_timer_(io_),
      backoff_(kFirstBackoff),
      chain_(&io_, options.launch.rank, options.launch.size,
             /*has_secret=*/!options.secret.empty(), options.tcp_timeout) {}

// --- Finding rank 0 ----------------------------------------------------------

void MemberSession::StartJoin() {
  Result<std::vector<Address>> addresses = RootAddresses();
  if (!addresses.ok()) {
    Fail(addresses.status());
    return;
  }
  roots_ = *std::move(addresses);
  Attempt();
}

void MemberSession::Attempt() {
  if (stopped()) {
    return;
  }
  ++attempts_;
  failures_.clear();
  resolved_.clear();
  if (roots_.front().unix_socket) {
    untried_ = {{UnixEndpoint(roots_.front().host), std::nullopt}};
    TryNext();
  } else {
    Resolve(0);
  }
}

void MemberSession::Resolve(size_t next) {
  const Address& root = roots_[next];
  waits_for_ = "no answer yet from the system for the name " + root.host;
  resolver_.Resolve(
      root.host, root.port,
      [this, next](const Result<std::vector<Endpoint>>& endpoints) {
        if (stopped()) {
          return;
        }
        if (!endpoints.ok()) {
          const Status why = endpoints.status().WithContext("cannot resolve " +
                                                            roots_[next].host);
          if (why.code() == StatusCode::kResourceExhausted) {
            Fail(why);
          } else {
            // A scheduler may publish the name of rank 0's host later.
            failures_ = why.message();
            RetryLater();
          }
          return;
        }
        resolved_.insert(resolved_.end(), endpoints->begin(), endpoints->end());
        next + 1 < roots_.size() ? Resolve(next + 1) : TryAll();
      });
}

void MemberSession::TryAll() {
  Result<std::vector<Route>> routes = RoutesTo(resolved_, options_.interfaces);
  if (!routes.ok()) {
    Fail(routes.status().WithContext("to reach rank 0 at " +
                                     options_.launch.root));
    return;
  }
  untried_.assign(routes->rbegin(), routes->rend());
  TryNext();
}

void MemberSession::TryNext() {
  const Route next = untried_.back();
  untried_.pop_back();
  Connect(next);
}

void MemberSession::Connect(const Route& route) {
  there_ = route.there;
  Result<FileDescriptor> fd = OpenConnecting(route);
  if (!fd.ok()) {
    OnConnectFailed(fd.status().message());
    return;
  }
  Result<AuthenticatedConnection::Socket> socket = AuthenticatedConnection::Own(
      &io_, route.there.protocol(), *std::move(fd));
  if (!socket.ok()) {
    OnConnectFailed(socket.status().message());
    return;
  }
  connecting_ = std::make_unique<AuthenticatedConnection::Socket>(
      std::move(socket).value());
  waits_for_ = DescribeConnectFailure(route, ETIMEDOUT);
  const int attempt = ++connects_;
  // A host that does not answer at all must not take all the time there is.
  retry_timer_.expires_after(untried_.empty()
                                 ? AuthenticatedConnection::kStrangerTimeout
                                 : kPatienceWithOneOfSeveral);
  retry_timer_.async_wait([this, attempt](const error_code& error) {
    if (!error && attempt == connects_ && connecting_ != nullptr) {
      error_code ignored;
      connecting_->close(ignored);
    }
  });
  connecting_->async_connect(
      route.there, [this, attempt, route](const error_code& error) {
        if (attempt != connects_ || stopped() || connecting_ == nullptr) {
          return;
        }
        retry_timer_.cancel();
        if (error) {
          const bool timed_out = error == boost::asio::error::operation_aborted;
          OnConnectFailed(DescribeConnectFailure(
              route, timed_out ? ETIMEDOUT : error.value()));
        } else if (IsConnectedToItself(connecting_->native_handle())) {
          OnConnectFailed(DescribeConnectFailure(route, ECONNREFUSED));
        } else {
          OnConnected();
        }
      });
}

void MemberSession::OnConnectFailed(const std::string& why) {
  connecting_.reset();
  failures_ += (failures_.empty() ? "" : "; ") + why;
  if (untried_.empty()) {
    RetryLater();
  } else {
    TryNext();
  }
}

void MemberSession::RetryLater() {
  last_failure_ = failures_;
  retry_timer_.expires_after(backoff_);
  backoff_ = std::min<std::chrono::milliseconds>(backoff_ * 2, kLongestBackoff);
  retry_timer_.async_wait([this](const error_code& error) {
    if (!error) {
      Attempt();
    }
  });
}

std::string MemberSession::DescribeSearch() const {
  if (!last_failure_.empty()) {
    return last_failure_;
  }
  return failures_ + (failures_.empty() ? "" : "; ") + waits_for_;
}

void MemberSession::OnConnected() {
  const int fd = connecting_->native_handle();
  waits_for_ = ToString(there_) +
               " takes connections, but whoever listens there says nothing: "
               "rank 0 is stopped, or it is another program";
  if (options_.secret.empty()) {
    if (const Status trusted = CheckPeer(fd); !trusted.ok()) {
      Refuse("a stranger listens there: " + trusted.message());
      OnConnectFailed("a stranger listens there");
      return;
    }
  }
  DetectDeadHost(fd, options_.tcp_timeout);
  const Endpoint own_side = OwnSide(fd);
  Result<std::string> contact =
      chain_.Listen(roots_.front(), own_side, options_.interfaces);
  if (!contact.ok()) {
    options_.logger.Warning("cannot listen for the neighbour, rank " +
                            std::to_string(rank() - 1) + ": " +
                            contact.status().message());
  }
  contact_ = contact.ok() ? *std::move(contact) : "";
  Result<Handshake> handshake =
      Handshake::Create(Handshake::Role::kConnector, handshake_options());
  if (!handshake.ok()) {
    Fail(handshake.status());
    return;
  }
  connection_ = std::make_shared<AuthenticatedConnection>(
      &io_, std::move(*connecting_), *std::move(handshake));
  connecting_.reset();
  connection_->Start({
      [this] { OnAuthenticated(); },
      [this](const Message& message) { OnMessage(message); },
      [this](const Status& reason) { OnClosed(reason); },
      [this] { NoteSent(); },
  });
}

// --- Joined to rank 0 --------------------------------------------------------

void MemberSession::OnAuthenticated() {
  authenticated_ = true;
  connection_->ConfirmPeer();
  NoteOwnSide(connection_->own_side());
  if (failed()) {
    TellFailure(failure());
    return;
  }
  if (!obstacle().ok()) {
    Fail(obstacle());
    return;
  }
  if (connection_->peer_version() != kBootstrapVersion) {
    Fail({StatusCode::kMismatch,
          "rank 0 speaks version " +
              std::to_string(connection_->peer_version()) +
              " of the bootstrap and rank " + std::to_string(rank()) +
              " version " + std::to_string(kBootstrapVersion) +
              ": use the same ringpipe on all ranks"});
    return;
  }
  Identity identity = own_identity();
  identity.contact = contact_;
  connection_->Send(JoinRequest{static_cast<uint32_t>(rank()),
                                static_cast<uint32_t>(size()),
                                LeftMs(options_.deadline), identity});
}

void MemberSession::OnClosed(const Status& reason) {
  if (leaving()) {
    GoOnLeaving();
    return;
  }
  if (failed()) {
    return;
  }
  if (authenticated_) {
    Fail(RankLost(DescribeRank(0), reason));
    return;
  }
  connection_.reset();
  if (reason.code() == StatusCode::kPeerLost) {
    OnConnectFailed(ToString(there_) +
                    " closed the connection during the handshake (" +
                    reason.message() +
                    "): another RINGPIPE_SECRET or RINGPIPE_JOB_ID there, or "
                    "another program?");
  } else if (reason.code() == StatusCode::kTimeout) {
    OnConnectFailed(waits_for_);
  } else {
    Refuse(reason.message());
    OnConnectFailed(reason.message());
  }
}

void MemberSession::OnMessage(const Message& message) {
  if (const auto* gathered = std::get_if<GatheredBlobs>(&message)) {
    OnGathered(*gathered);
  } else if (std::holds_alternative<Question>(message)) {
    connection_->Send(Reply{OwnReply()});
  } else if (const auto* replies = std::get_if<Replies>(&message)) {
    OnReplies(*replies);
  } else if (const auto* notice = std::get_if<AbortNotice>(&message)) {
    // Closing is the answer that rank 0 waits for when it leaves.
    connection_->Close();
    Fail(notice->reason);
    GoOnLeaving();
  } else if (const auto* departure = std::get_if<Departure>(&message);
             departure != nullptr &&
             departure->rank < static_cast<uint32_t>(size())) {
    if (departure->rank == 0) {
      connection_->Close();
    }
    NoteDeparture(*departure);
    GoOnLeaving();
  } else {
    Fail({StatusCode::kInternal,
          "rank 0 sent a message that only rank 0 may receive"});
  }
}

void MemberSession::OnGathered(const GatheredBlobs& gathered) {
  if (gathered.sequence != sequence_ ||
      gathered.first_rank != gathered_.size() ||
      gathered.blobs.size() > size() - gathered_.size()) {
    Fail({StatusCode::kInternal,
          "rank 0 sent a result out of order over the bootstrap"});
    return;
  }
  gathered_.insert(gathered_.end(), gathered.blobs.begin(),
                   gathered.blobs.end());
  if (gathered_.size() < static_cast<size_t>(size())) {
    return;
  }
  std::vector<std::string> blobs = std::move(gathered_);
  gathered_.clear();
  ++sequence_;
  if (joined()) {
    CompleteCall(std::move(blobs));
  } else {
    CompleteJoin(std::move(blobs));
    if (joined()) {
      ConnectChain();
    }
  }
}

void MemberSession::OnReplies(const Replies& replies) {
  if (replies.first_rank == 0) {
    replies_.clear();
  }
  if (replies.first_rank != replies_.size() ||
      replies.texts.size() > size() - replies_.size()) {
    Fail({StatusCode::kInternal,
          "rank 0 sent replies out of order over the bootstrap"});
    return;
  }
  replies_.insert(replies_.end(), replies.texts.begin(), replies.texts.end());
  if (replies_.size() == static_cast<size_t>(size())) {
    CompleteAsking(replies_);
  }
}

void MemberSession::ConnectChain() {
  const int above = rank() + 1;
  chain_.Connect(
      job_key(), above < size() ? IdentityOf(above).contact : "",
      options_.interfaces,
      {[this](const Status& reason) {
         if (!leaving() && !HasLeftInOrder(0)) {
           Fail(reason);
         }
       },
       [this](const Departure& neighbour) { NoteEarlyDeparture(neighbour); },
       [this](int neighbour, const Status& why) {
         OnNeighbourLost(neighbour, why);
       },
       [this](int neighbour, const std::string& why) {
         if (!failed() && !leaving()) {
           options_.logger.Warning("no bootstrap connection to " +
                                   DescribeRank(neighbour) + " (" + why +
                                   "): if rank 0 is stopped, this rank learns "
                                   "late that another rank has died. Ranks "
                                   "with neighbouring numbers connect at TCP "
                                   "ports that the kernel chooses");
         }
       },
       [this](const std::string& why) {
         Refuse("a stranger came in the place of rank " +
                std::to_string(rank() - 1) + ": " + why);
       },
       [this] { GoOnLeaving(); }});
}

void MemberSession::OnNeighbourLost(int neighbour, const Status& why) {
  // It may have ended for a reason that rank 0 tells, or have left in order.
  neighbour_timer_.expires_after(kWordOfRankZero);
  neighbour_timer_.async_wait([this, neighbour, why](const error_code& error) {
    // Once rank 0 has left, ranks are no longer each other's concern here.
    if (error || failed() || leaving() || HasLeftInOrder(0) ||
        HasDeparted(neighbour)) {
      return;
    }
    Fail(RankLost(DescribeRank(neighbour), why));
  });
}

void MemberSession::Contribute(Contribution contribution) {
  if (!HasDeparted(0)) {
    connection_->Send(std::move(contribution));
  }
}

void MemberSession::Ask() {
  if (!HasDeparted(0)) {
    connection_->Send(Question{});
  }
}

Status MemberSession::DescribeTimeout(Gathering gathering) {
  if (gathering != Gathering::kJoin) {
    return {StatusCode::kTimeout,
            std::string("the bootstrap's ") + GatheringName(gathering) +
                " did not complete by the deadline of rank " +
                std::to_string(rank()) + ", and rank 0 does not say why"};
  }
  const std::string who = "rank " + std::to_string(rank()) +
                          " could not join at " + options_.launch.root +
                          " in time: ";
  // Whoever answered at rank 0's address, and was not rank 0.
  const std::string refused =
      refused_connections() > 0 ? DescribeRefused() : std::string();
  if (authenticated_) {
    return {StatusCode::kTimeout,
            who + "rank 0 is there but does not say who is missing" + refused};
  }
  return {StatusCode::kTimeout,
          who + "rank 0 is missing (" + DescribeSearch() + "; " +
              std::to_string(attempts_) + " attempts)" + refused +
              "; check that rank 0 runs and has the same RINGPIPE_ROOT, "
              "RINGPIPE_JOB_ID and RINGPIPE_SECRET"};
}

// --- The end -----------------------------------------------------------------

void MemberSession::TellFailure(const Status& reason) {
  // After rank 0 has left, a failure is this rank's alone.
  if (HasLeftInOrder(0)) {
    chain_.Leave();
  } else {
    chain_.Tell(reason);
  }
  if (authenticated_) {
    connection_->Send(AbortNotice{reason});
    connection_->FinishSending();
  }
}

void MemberSession::CutOff() {
  chain_.CutOff();
  if (connection_ != nullptr) {
    connection_->Close();
  }
}

void MemberSession::StartLeaving(const Departure& own) {
  resolver_.Cancel();
  retry_timer_.cancel();
  chain_.Leave(own);
  if (authenticated_ && !connection_->closed()) {
    connection_->Send(own);
    connection_->FinishSending();
  }
}

bool MemberSession::HasSentLast() const {
  return (!authenticated_ || connection_->has_sent_last()) &&
         chain_.has_sent_last();
}

bool MemberSession::IsAlone() const {
  return (!authenticated_ || connection_->closed()) && chain_.closed();
}

}  // namespace ringpipe
