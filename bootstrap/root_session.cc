#include "bootstrap/root_session.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <utility>

#include "bootstrap/address_holder.h"

namespace ringpipe {
namespace {

using boost::system::error_code;

// As many as come in a burst; but descriptors are for ranks, too.
constexpr size_t kMostStrangers = 512;

size_t MostStrangers() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
                 limit.rlim_cur != RLIM_INFINITY
             ? std::clamp<size_t>(limit.rlim_cur / 4, 16, kMostStrangers)
             : kMostStrangers;
}

// How long a stranger keeps its place when others wait for one. A rank needs
// two round trips.
constexpr auto kStrangersPlace = std::chrono::milliseconds(250);
constexpr auto kRoomRetry = std::chrono::milliseconds(5);
constexpr auto kDescriptorsRetry = std::chrono::milliseconds(100);

constexpr char kTwoJobs[] =
    "; if these are two jobs, give each an address or a RINGPIPE_JOB_ID of its "
    "own";

// A rank's deadline, a little early, so that it hears from rank 0 who is
// missing before it gives up by itself.
int64_t BeforeMs(int64_t left_ms) {
  return left_ms - std::clamp<int64_t>(left_ms / 10, 0, 200);
}

}  // namespace

RootSession::RootSession(const Bootstrap::Options& options)
    : Session(options),
      resolver_(&io_),
      most_strangers_(MostStrangers()),
      ranks_(options.launch.size),
      joined_as_(options.launch.size),
      inquiry_(&io_, options.launch.size,
               [this](int asker, const std::vector<std::string>& texts) {
                 if (asker == 0) {
                   CompleteAsking(texts);
                   return;
                 }
                 for (const Replies& some : Replies::InMessages(texts)) {
                   ranks_[asker]->Send(some);
                 }
               }) {
  round_.blobs.resize(options.launch.size);
  round_.missing = options.launch.size;
}

// --- Listening ---------------------------------------------------------------

void RootSession::StartJoin() {
  joined_as_[0] = own_identity();
  if (size() > 1) {
    Result<std::vector<Address>> addresses = RootAddresses();
    if (!addresses.ok()) {
      Fail(addresses.status());
      return;
    }
    root_ = std::move(addresses->front());
    if (root_.unix_socket) {
      ListenOn({UnixEndpoint(root_.host)}, /*all=*/true);
    } else {
      ResolveAndListen(root_);
    }
  }
  TakeContribution(0, {0, Gathering::kJoin, -1, joined_as_[0].Encode()});
}

void RootSession::ResolveAndListen(const Address& address) {
  const auto endpoints = ListeningEndpoints(options_.interfaces, address.port);
  if (!endpoints.ok()) {
    Fail(endpoints.status());
    return;
  }
  if (address.is_any()) {
    ListenOn(*endpoints, /*all=*/!options_.interfaces.admits_all());
    return;
  }
  const auto is_for_others = [&](const Endpoint& endpoint) {
    return !IsLocal(endpoint) &&
           (address.IsLinkLocal() || !IsLinkLocal(endpoint));
  };
  // What this host's own name means to it is often loopback (/etc/hosts), and
  // its other names need not be addresses of an interface.
  if (!address.IsLoopback() &&
      std::any_of(endpoints->begin(), endpoints->end(), is_for_others)) {
    ListenOn(*endpoints, /*all=*/!options_.interfaces.admits_all());
    CheckName(address);
    return;
  }
  resolver_.Resolve(
      address.host, address.port,
      [this, address](const Result<std::vector<Endpoint>>& own) {
        if (failed() || leaving()) {
          return;
        }
        if (!own.ok()) {
          Fail({own.status().code(),
                "rank 0 cannot resolve its own address " + address.ToString() +
                    ": " + own.status().message() + "; check RINGPIPE_ROOT"});
        } else if (!address.IsLoopback() &&
                   !std::all_of(own->begin(), own->end(), IsLocal)) {
          Fail(NoAddressForOthers().WithContext("rank 0 at " +
                                                address.ToString()));
        } else {
          ListenOn(*own, /*all=*/true);
        }
      });
}

void RootSession::CheckName(const Address& address) {
  resolver_.Resolve(
      address.host, address.port,
      [this, address](const Result<std::vector<Endpoint>>& endpoints) {
        if (!endpoints.ok()) {
          name_doubt_ = "; rank 0's host does not know the name " +
                        address.host + " (" + endpoints.status().message() +
                        ")";
        } else if (std::none_of(endpoints->begin(), endpoints->end(), IsOwn)) {
          name_doubt_ =
              "; RINGPIPE_ROOT leads to " + AddressOf(endpoints->front()) +
              ", which is no address of rank 0's host " + own_identity().host +
              " (it has " + DescribeOwnAddresses() + "): it has to lead there";
        }
      });
}

// Gives it the descriptor.
Status RootSession::Own(Listener::Socket* socket, FileDescriptor fd) {
  error_code error;
  socket->assign(fd.get(), error);
  if (!error) {
    fd.Release();
    return Status::Ok();
  }
  return ErrnoStatus(StatusCode::kResourceExhausted, "epoll", error.value());
}

void RootSession::ListenOn(const std::vector<Endpoint>& endpoints, bool all) {
  Status last;
  for (auto at = endpoints.begin(); at != endpoints.end(); ++at) {
    const Endpoint& endpoint = *at;
    if (std::find(endpoints.begin(), at, endpoint) != at) {
      continue;  // /etc/hosts has it twice, or two interfaces have it
    }
    auto listener = std::make_unique<Listener>(&io_);
    Result<FileDescriptor> fd = OpenListening(endpoint);
    if (fd.ok()) {
      last = Own(&listener->socket, *std::move(fd));
      if (last.ok()) {
        listeners_.push_back(std::move(listener));
        if (!all) {
          break;
        }
        continue;
      }
    } else {
      last = fd.status();
    }
    if (last.code() != StatusCode::kInvalidArgument) {
      // Half of an address would be another process's.
      StopListening();
      listeners_.clear();
      if (last.code() == StatusCode::kUnavailable) {
        AskHolder(endpoint, last);
        return;
      }
      break;
    }
  }
  if (listeners_.empty()) {
    Fail(last.WithContext("rank 0 at " + options_.launch.root));
    return;
  }
  for (const auto& listener : listeners_) {
    WaitToAccept(listener.get());
  }
  if (options_.store != nullptr) {
    NoteListening(OwnAddresses());
  }
  if (!obstacle().ok()) {
    Fail(obstacle());  // who comes is told
  }
}

Result<std::vector<std::string>> RootSession::OwnAddresses() const {
  // A name says more than addresses where a port was given for it.
  if (root_.unix_socket || (!root_.is_any() && root_.port != 0)) {
    return std::vector<std::string>{root_.ToString()};
  }
  std::vector<Endpoint> listening;
  for (const auto& listener : listeners_) {
    RINGPIPE_ASSIGN_OR_RETURN(const Endpoint own,
                              FindOwnSide(listener->socket.native_handle()));
    listening.push_back(own);
  }
  return AddressesOf(listening, options_.interfaces);
}

void RootSession::AskHolder(const Endpoint& endpoint, const Status& refusal) {
  Result<Handshake> handshake =
      Handshake::Create(Handshake::Role::kConnector, handshake_options());
  if (!handshake.ok()) {
    Fail(handshake.status());
    return;
  }
  refusal_ = Status(refusal.code(),
                    refusal.message() +
                        "; if another job has the address, choose another one "
                        "(RINGPIPE_ROOT)")
                 .WithContext("rank 0 at " + options_.launch.root);
  const JoinRequest claim = {0, static_cast<uint32_t>(size()), -1,
                             own_identity()};
  AddressHolder::Ask(
      &io_, endpoint, !options_.secret.empty(), *std::move(handshake), claim,
      [this](const Status& answer) { Fail(answer.ok() ? refusal_ : answer); });
}

void RootSession::StopListening() {
  resolver_.Cancel();
  for (const auto& listener : listeners_) {
    listener->pause.cancel();
    error_code ignored;
    listener->socket.close(ignored);
  }
}

void RootSession::WaitToAccept(Listener* listener) {
  listener->socket.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                              [this, listener](const error_code& error) {
                                if (!error && listener->socket.is_open()) {
                                  Accept(listener);
                                }
                              });
}

void RootSession::Accept(Listener* listener) {
  if (strangers_.size() >= most_strangers_) {
    MakeRoom();
  }
  if (strangers_.size() >= most_strangers_) {
    AcceptLater(listener, kRoomRetry);
    return;
  }
  FileDescriptor fd = AcceptFrom(listener->socket.native_handle());
  if (fd) {
    Admit(std::move(fd));
  } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
    // The connection stays in the backlog; to wait for it would spin.
    if (!lacked_descriptors_) {
      lacked_descriptors_ = true;
      options_.logger.Warning(
          "rank 0 cannot accept connections: no descriptors are left; raise "
          "'ulimit -n'");
    }
    AcceptLater(listener, kDescriptorsRetry);
    return;
  }
  if (listener->socket.is_open()) {
    WaitToAccept(listener);
  }
}

void RootSession::AcceptLater(Listener* listener,
                              std::chrono::milliseconds pause) {
  listener->pause.expires_after(pause);
  listener->pause.async_wait([this, listener](const error_code& error) {
    if (!error && listener->socket.is_open()) {
      Accept(listener);
    }
  });
}

void RootSession::MakeRoom() {
  for (const Stranger& stranger : strangers_) {
    if (stranger.since + kStrangersPlace > Clock::now()) {
      return;
    }
    // Who has proved to be of the job keeps its place.
    if (!stranger.connection->authenticated()) {
      const std::shared_ptr<AuthenticatedConnection> oldest =
          stranger.connection;
      oldest->Close();
      OnStrangerClosed(
          oldest.get(),
          {StatusCode::kTimeout,
           "it had not completed the handshake when others needed its "
           "connection"});
      return;
    }
  }
}

void RootSession::Admit(FileDescriptor fd) {
  if (options_.secret.empty()) {
    if (const Status trusted = CheckPeer(fd.get()); !trusted.ok()) {
      Refuse(trusted.message());
      return;
    }
  }
  DetectDeadHost(fd.get(), options_.tcp_timeout);
  Result<Handshake> handshake =
      Handshake::Create(Handshake::Role::kAcceptor, handshake_options());
  if (!handshake.ok()) {
    Fail(handshake.status());
    return;
  }
  const auto protocol = OwnSide(fd.get()).protocol();
  Result<AuthenticatedConnection::Socket> socket =
      AuthenticatedConnection::Own(&io_, protocol, std::move(fd));
  if (!socket.ok()) {
    return;
  }
  const auto connection = std::make_shared<AuthenticatedConnection>(
      &io_, std::move(socket).value(), *std::move(handshake));
  strangers_.push_back({connection, Clock::now()});
  AuthenticatedConnection* const self = connection.get();
  connection->Start({
      [this, self] { OnAuthenticated(self); },
      [this, self](const Message& message) {
        OnStrangersMessage(self, message);
      },
      [this, self](const Status& reason) { OnStrangerClosed(self, reason); },
  });
}

// --- Strangers, who may become ranks -----------------------------------------

std::shared_ptr<AuthenticatedConnection> RootSession::TakeStranger(
    AuthenticatedConnection* connection) {
  for (auto at = strangers_.begin(); at != strangers_.end(); ++at) {
    if (at->connection.get() == connection) {
      std::shared_ptr<AuthenticatedConnection> taken = at->connection;
      strangers_.erase(at);
      return taken;
    }
  }
  return nullptr;
}

void RootSession::OnStrangerClosed(AuthenticatedConnection* connection,
                                   const Status& reason) {
  TakeStranger(connection);
  if (failed() || leaving()) {
    return;
  }
  if (reason.code() == StatusCode::kResourceExhausted) {
    // It may have been a rank, which will not come again.
    Fail(reason.WithContext("rank 0"));
  } else {
    Refuse(reason.code() == StatusCode::kPeerLost
               ? "it went away before it had proved to be a rank (" +
                     reason.message() + ")"
               : reason.message());
  }
}

void RootSession::OnAuthenticated(AuthenticatedConnection* connection) {
  Status contradiction = failure();
  if (connection->peer_version() != kBootstrapVersion) {
    contradiction = {StatusCode::kMismatch,
                     "a rank speaks version " +
                         std::to_string(connection->peer_version()) +
                         " of the bootstrap and rank 0 version " +
                         std::to_string(kBootstrapVersion) +
                         ": use the same ringpipe on all ranks"};
  }
  if (!contradiction.ok()) {
    Fail(contradiction);
    Rebuff(TakeStranger(connection), contradiction);
  }
}

void RootSession::OnStrangersMessage(AuthenticatedConnection* connection,
                                     const Message& message) {
  const std::shared_ptr<AuthenticatedConnection> taken =
      TakeStranger(connection);
  if (const auto* notice = std::get_if<AbortNotice>(&message)) {
    // A rank of the job, if of another version or just aborted.
    Fail(notice->reason);
    Rebuff(taken, notice->reason);
    return;
  }
  const auto* request = std::get_if<JoinRequest>(&message);
  if (request == nullptr) {
    taken->Close();
    Refuse("it did not ask to join");
    return;
  }
  const Status contradiction = failed() ? failure() : CheckJoin(*request);
  if (!contradiction.ok()) {
    Fail(contradiction);
    Rebuff(taken, contradiction);
    return;
  }
  const int rank = static_cast<int>(request->rank);
  taken->ConfirmPeer();
  ranks_[rank] = taken;
  joined_as_[rank] = request->identity;
  NoteOwnSide(taken->own_side());
  taken->SetEvents({
      [] {},
      [this, rank](const Message& later) { OnRanksMessage(rank, later); },
      [this, rank](const Status& reason) { OnRankClosed(rank, reason); },
      [this] { NoteSent(); },
  });
  TakeContribution(rank, {0, Gathering::kJoin, request->left_ms,
                          request->identity.Encode()});
}

Status RootSession::CheckJoin(const JoinRequest& request) const {
  const std::string who = "rank " + std::to_string(request.rank) + " (" +
                          request.identity.ToString() + ")";
  if (request.size != static_cast<uint32_t>(size())) {
    return {StatusCode::kMismatch,
            who + " says that the job has " + std::to_string(request.size) +
                " ranks, rank 0 says " + std::to_string(size()) +
                ": set the same size everywhere"};
  }
  if (request.rank >= static_cast<uint32_t>(size())) {
    return {StatusCode::kMismatch,
            who + " joined, but the ranks of this job are 0 to " +
                std::to_string(size() - 1)};
  }
  if (request.rank == 0 || ranks_[request.rank] != nullptr) {
    return {StatusCode::kMismatch,
            "two processes claim to be rank " + std::to_string(request.rank) +
                ": " + joined_as_[request.rank].ToString() + ", and " +
                request.identity.ToString() + kTwoJobs};
  }
  return Status::Ok();
}

void RootSession::Rebuff(
    const std::shared_ptr<AuthenticatedConnection>& connection,
    const Status& reason) {
  rebuffed_.insert(connection);
  connection->ConfirmPeer();
  const std::weak_ptr<AuthenticatedConnection> weak = connection;
  connection->SetEvents({
      [] {},
      [](const Message& /*ignored*/) {},
      [this, weak](const Status& /*closed*/) {
        rebuffed_.erase(weak.lock());
        GoOnLeaving();
      },
  });
  connection->Send(AbortNotice{reason});
  connection->FinishSending();
}

// --- Ranks -------------------------------------------------------------------

void RootSession::OnRanksMessage(int rank, const Message& message) {
  if (const auto* notice = std::get_if<AbortNotice>(&message)) {
    Fail(notice->reason);
  } else if (const auto* contribution = std::get_if<Contribution>(&message)) {
    TakeContribution(rank, *contribution);
  } else if (std::holds_alternative<Question>(message)) {
    AskFor(rank);
  } else if (const auto* reply = std::get_if<Reply>(&message)) {
    inquiry_.TakeReply(rank, reply->text);
  } else if (const auto* departure = std::get_if<Departure>(&message)) {
    ranks_[rank]->Close();
    const Departure of_rank = {static_cast<uint32_t>(rank), departure->calls,
                               departure->lives_on};
    NoteDeparture(of_rank);
    SendToAll(of_rank);
    GoOnLeaving();
  } else {
    Fail({StatusCode::kInternal,
          DescribeRank(rank) + " sent a message that only rank 0 may send"});
  }
}

void RootSession::OnRankClosed(int rank, const Status& reason) {
  if (!failed() && !leaving()) {
    const std::string who = "rank " + std::to_string(rank) + " (" +
                            joined_as_[rank].ToString() + ")";
    Fail(RankLost(who, reason));
  }
  GoOnLeaving();
}

void RootSession::SendToAll(const Message& message) {
  const auto encoded =
      std::make_shared<const std::string>(EncodeMessage(message));
  for (const std::shared_ptr<AuthenticatedConnection>& connection : ranks_) {
    if (connection != nullptr) {
      connection->Send(encoded);
    }
  }
}

// --- Gathering ---------------------------------------------------------------

void RootSession::Contribute(Contribution contribution) {
  TakeContribution(0, std::move(contribution));
}

// --- Asking ------------------------------------------------------------------

void RootSession::AskFor(int asker) {
  if (inquiry_.Begin(asker)) {
    SendToAll(Question{});
    inquiry_.TakeReply(0, OwnReply());
  }
}

void RootSession::TakeContribution(int rank, Contribution contribution) {
  if (failed() || anybody_departed()) {
    return;  // the rank learns that from its own connection
  }
  if (!round_.open) {
    round_.open = true;
    round_.gathering = contribution.gathering;
  }
  if (contribution.gathering != round_.gathering) {
    Fail({StatusCode::kMismatch,
          DescribeRank(rank) + " called the bootstrap's " +
              GatheringName(contribution.gathering) +
              " where other ranks called its " +
              GatheringName(round_.gathering) +
              ": all ranks must make the same calls in the same order"});
    return;
  }
  if (contribution.sequence != round_.sequence || round_.blobs[rank]) {
    Fail({StatusCode::kInternal,
          DescribeRank(rank) + " called a bootstrap collective out of order"});
    return;
  }
  if (rank != 0 && contribution.left_ms >= 0) {
    ArmTimeout(round_.gathering, BeforeMs(contribution.left_ms));
  }
  round_.blobs[rank] = std::move(contribution.blob);
  if (--round_.missing == 0) {
    CompleteRound();
  }
}

void RootSession::CompleteRound() {
  std::vector<std::string> blobs;
  blobs.reserve(round_.blobs.size());
  for (std::optional<std::string>& blob : round_.blobs) {
    blobs.push_back(*std::exchange(blob, std::nullopt));
  }
  const Gathering gathering = round_.gathering;
  if (gathering == Gathering::kJoin) {
    // Those of this host who came by loopback learn it from here.
    joined_as_[0].contact = address();
    blobs[0] = joined_as_[0].Encode();
  }
  if (gathering == Gathering::kBarrier) {
    // Before the ranks hear of it: the next join of one of them is not ours.
    StopAdmitting();
  }
  GatheredBlobs::InMessages(
      round_.sequence, blobs,
      [this](const GatheredBlobs& some) { SendToAll(some); });
  ++round_.sequence;
  round_.missing = size();
  round_.open = false;
  if (gathering == Gathering::kJoin) {
    CompleteJoin(std::move(blobs));
  } else {
    CompleteCall(std::move(blobs));
  }
}

void RootSession::StopAdmitting() {
  StopListening();
  while (!strangers_.empty()) {
    const std::shared_ptr<AuthenticatedConnection> late =
        strangers_.front().connection;
    TakeStranger(late.get());
    Refuse("all ranks had joined already");
    if (late->authenticated()) {
      Rebuff(late, {StatusCode::kMismatch,
                    "all ranks of the job have joined already: was this rank "
                    "started twice?"});
    } else {
      late->Close();
    }
  }
}

Status RootSession::DescribeTimeout(Gathering gathering) {
  if (!refusal_.ok()) {
    return refusal_;
  }
  std::set<int> missing;
  for (int rank = 0; rank < size(); ++rank) {
    if (!round_.blobs[rank]) {
      missing.insert(rank);
    }
  }
  const std::string ranks =
      "rank(s) " + FormatRanks(missing) + " of " + std::to_string(size());
  if (gathering == Gathering::kJoin) {
    return {StatusCode::kTimeout,
            ranks + " did not join at " + options_.launch.root + " in time" +
                (lacked_descriptors_
                     ? "; rank 0 had no descriptors left for them, raise "
                       "'ulimit -n'"
                     : "") +
                name_doubt_ + DescribeRefused() +
                "; check that they run and have the same RINGPIPE_ROOT, "
                "RINGPIPE_JOB_ID and RINGPIPE_SECRET"};
  }
  return {StatusCode::kTimeout, ranks + " did not call the bootstrap's " +
                                    GatheringName(gathering) +
                                    " by its deadline"};
}

// --- The end -----------------------------------------------------------------

void RootSession::TellFailure(const Status& reason) {
  SendToAll(AbortNotice{reason});
  for (const std::shared_ptr<AuthenticatedConnection>& connection : ranks_) {
    if (connection != nullptr) {
      connection->FinishSending();
    }
  }
  for (auto at = strangers_.begin(); at != strangers_.end();) {
    if (at->connection->authenticated()) {
      Rebuff(at->connection, reason);
      at = strangers_.erase(at);
    } else {
      ++at;  // it may be a rank: let it get as far as to hear why
    }
  }
}

void RootSession::CutOff() {
  for (const std::shared_ptr<AuthenticatedConnection>& connection : ranks_) {
    if (connection != nullptr) {
      connection->Close();
    }
  }
  for (const Stranger& stranger : strangers_) {
    stranger.connection->Close();
  }
}

void RootSession::StartLeaving(const Departure& own) {
  if (!failed()) {
    SendToAll(own);
    for (const std::shared_ptr<AuthenticatedConnection>& connection : ranks_) {
      if (connection != nullptr) {
        connection->FinishSending();
      }
    }
  }
}

bool RootSession::HasSentLast() const {
  return std::all_of(
      ranks_.begin(), ranks_.end(),
      [](const std::shared_ptr<AuthenticatedConnection>& connection) {
        return connection == nullptr || connection->has_sent_last();
      });
}

bool RootSession::IsAlone() const {
  // Ranks that are late for a join that failed should not have to find out by
  // their own timeout: they get what is left of the second that leaving may
  // take. After a timeout they are too late anyway, and a caller that has ended
  // the join (Ctrl-C) waits for nobody.
  const bool answers_late_ranks = !joined() && !listeners_.empty() &&
                                  failure().code() != StatusCode::kTimeout &&
                                  !was_ended_by_caller();
  for (int rank = 1; rank < size(); ++rank) {
    const bool absent = ranks_[rank] == nullptr;
    if (absent ? answers_late_ranks : !ranks_[rank]->closed()) {
      return false;
    }
  }
  return rebuffed_.empty();
}

}  // namespace ringpipe
