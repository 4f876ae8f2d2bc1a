#include "bootstrap/chain.h"

#include <unistd.h>

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cerrno>
#include <cstring>

#include "auth/mac.h"
#include "bootstrap/session.h"

namespace ringpipe {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Nobody but the rank below knows of the address.
constexpr size_t kMostStrangers = 16;
// How long one of them keeps its place when others wait for one.
constexpr auto kStrangersPlace = std::chrono::milliseconds(250);
constexpr auto kRoomRetry = std::chrono::milliseconds(5);
constexpr auto kDescriptorsRetry = std::chrono::milliseconds(100);
// The rank above listens already; what is in the way may go away.
constexpr size_t kMostAttempts = 6;
constexpr auto kFirstPause = std::chrono::milliseconds(20);

tcp::endpoint AsTcp(const Endpoint& endpoint) {
  tcp::endpoint tcp(
      endpoint.data()->sa_family == AF_INET ? tcp::v4() : tcp::v6(), 0);
  std::memcpy(tcp.data(), endpoint.data(), tcp.size());
  return tcp;
}

Result<std::string> NewUnixName() {
  RINGPIPE_ASSIGN_OR_RETURN(const Nonce nonce, RandomNonce());
  std::string name = "ringpipe-chain-";
  for (size_t i = 0; i < 16; ++i) {
    constexpr std::string_view kHex = "0123456789abcdef";
    name += kHex[static_cast<uint8_t>(nonce[i]) >> 4];
    name += kHex[static_cast<uint8_t>(nonce[i]) & 15];
  }
  return name;
}

// An address of this host at which the other ranks reach it, port 0; none where
// the name that they have for rank 0's host, which is this one, must do.
std::optional<tcp::endpoint> ReachableAddress(const Address& root,
                                              const Endpoint& own_side,
                                              const NameFilter& interfaces) {
  tcp::endpoint own = AsTcp(own_side);
  own.port(0);
  if (!own.address().is_loopback() || root.IsLoopback()) {
    return own;
  }
  if (!interfaces.admits_all()) {
    const auto endpoints = ListeningEndpoints(interfaces, 0);
    for (size_t i = 0; endpoints.ok() && i < endpoints->size(); ++i) {
      if (!IsLocal((*endpoints)[i])) {
        return AsTcp((*endpoints)[i]);
      }
    }
  }
  return std::nullopt;
}

}  // namespace

Chain::Chain(asio::io_context* io, int rank, int size, bool has_secret,
             std::chrono::milliseconds tcp_timeout)
    : io_(io),
      rank_(rank),
      size_(size),
      has_secret_(has_secret),
      tcp_timeout_(tcp_timeout),
      resolver_(io),
      accept_pause_(*io),
      connect_pause_(*io) {}

// --- The rank below connects -------------------------------------------------

Result<std::string> Chain::Listen(const Address& root, const Endpoint& own_side,
                                  const NameFilter& interfaces) {
  if (!has_below()) {
    return std::string();
  }
  Address contact = root;
  RINGPIPE_ASSIGN_OR_RETURN(std::vector<Endpoint> places,
                            ListeningEndpoints(NameFilter(), 0));
  if (root.unix_socket) {
    RINGPIPE_ASSIGN_OR_RETURN(contact.host, NewUnixName());
    places = {UnixEndpoint(contact.host)};
  } else if (const std::optional<tcp::endpoint> address =
                 ReachableAddress(root, own_side, interfaces)) {
    contact.host = address->address().to_string();
    places = {*address};
  }
  Result<FileDescriptor> fd = OpenListening(places.front());
  if (!fd.ok() && places.size() > 1) {
    fd = OpenListening(places.back());  // a kernel may have no IPv6
  }
  RINGPIPE_RETURN_IF_ERROR(fd.status());
  listener_.emplace(*io_);
  error_code error;
  listener_->assign(fd->get(), error);
  if (error) {
    listener_.reset();
    return Status(StatusCode::kResourceExhausted, error.message());
  }
  fd->Release();
  if (!root.unix_socket) {
    contact.port = AsTcp(OwnSide(listener_->native_handle())).port();
  }
  return contact.ToString();
}

void Chain::WaitToAccept() {
  listener_->async_wait(asio::posix::stream_descriptor::wait_read,
                        [this](const error_code& error) {
                          if (!error && listener_) {
                            Accept();
                          }
                        });
}

void Chain::AcceptLater(std::chrono::milliseconds pause) {
  accept_pause_.expires_after(pause);
  accept_pause_.async_wait([this](const error_code& error) {
    if (!error && listener_) {
      Accept();
    }
  });
}

bool Chain::MakeRoom() {
  std::erase_if(strangers_,
                [](const Stranger& one) { return one.link->closed(); });
  if (strangers_.size() < kMostStrangers) {
    return true;
  }
  if (strangers_.front().since + kStrangersPlace > Clock::now()) {
    return false;
  }
  strangers_.front().link->Close();
  strangers_.pop_front();
  return true;
}

void Chain::Accept() {
  if (!MakeRoom()) {
    AcceptLater(kRoomRetry);
    return;
  }
  FileDescriptor fd = AcceptFrom(listener_->native_handle());
  if (!fd && errno != EAGAIN) {
    // No descriptors, perhaps: to wait for the connection would spin.
    AcceptLater(kDescriptorsRetry);
    return;
  }
  if (fd) {
    Admit(std::move(fd));
  }
  WaitToAccept();
}

void Chain::Admit(FileDescriptor fd) {
  if (!has_secret_) {
    if (const Status trusted = CheckPeer(fd.get()); !trusted.ok()) {
      events_.refused(trusted.message());
      return;
    }
  }
  DetectDeadHost(fd.get(), tcp_timeout_);
  const auto protocol = OwnSide(fd.get()).protocol();
  Result<AuthenticatedConnection::Socket> socket =
      AuthenticatedConnection::Own(io_, protocol, std::move(fd));
  if (socket.ok()) {
    const Link stranger =
        Start(std::move(socket).value(), Handshake::Role::kAcceptor, rank_ - 1,
              {[this] { OnBelowAuthenticated(); },
               [](const Message& /*early*/) {}, [](const Status& /*why*/) {}});
    if (stranger != nullptr) {
      strangers_.push_back({stranger, Clock::now()});
    }
  }
}

void Chain::OnBelowAuthenticated() {
  listener_.reset();
  accept_pause_.cancel();
  for (const Stranger& stranger : std::exchange(strangers_, {})) {
    if (below_ == nullptr && stranger.link->authenticated()) {
      below_ = stranger.link;
    } else {
      stranger.link->Close();
    }
  }
  Adopt(below_, rank_ - 1, /*heard=*/false);
}

// --- The rank above is connected to ------------------------------------------

void Chain::Connect(const std::string& job_key,
                    const std::string& contact_above,
                    const NameFilter& interfaces, Events events) {
  job_key_ = job_key;
  interfaces_ = interfaces;
  events_ = std::move(events);
  if (last_words_) {
    return;
  }
  if (listener_) {
    WaitToAccept();
  }
  if (!has_above()) {
    return;
  }
  const Result<Address> address = Address::Parse(contact_above);
  if (!address.ok()) {
    events_.missing(rank_ + 1, "it does not listen");
  } else if (address->unix_socket) {
    ConnectTo({UnixEndpoint(address->host)});
  } else {
    resolver_.Resolve(address->host, address->port,
                      [this](const Result<std::vector<Endpoint>>& endpoints) {
                        if (!endpoints.ok()) {
                          events_.missing(rank_ + 1,
                                          endpoints.status().message());
                        } else {
                          ConnectTo(*endpoints);
                        }
                      });
  }
}

void Chain::ConnectTo(const std::vector<Endpoint>& above) {
  Result<std::vector<Route>> routes = RoutesTo(above, interfaces_);
  if (!routes.ok()) {
    events_.missing(rank_ + 1, routes.status().message());
    return;
  }
  routes_above_ = *std::move(routes);
  TryAbove();
}

void Chain::TryAbove() {
  if (last_words_) {
    return;
  }
  const Route& route = routes_above_[attempts_ % routes_above_.size()];
  ++attempts_;
  Result<FileDescriptor> fd = OpenConnecting(route);
  if (!fd.ok()) {
    TryAgain(fd.status().message());
    return;
  }
  Result<AuthenticatedConnection::Socket> socket =
      AuthenticatedConnection::Own(io_, route.there.protocol(), *std::move(fd));
  if (!socket.ok()) {
    TryAgain(socket.status().message());
    return;
  }
  connecting_.emplace(std::move(socket).value());
  connect_pause_.expires_after(AuthenticatedConnection::kStrangerTimeout);
  connect_pause_.async_wait([this](const error_code& error) {
    if (!error && connecting_) {
      error_code ignored;
      connecting_->close(ignored);
    }
  });
  connecting_->async_connect(route.there, [this,
                                           route](const error_code& error) {
    if (!connecting_) {
      return;  // given up, though it may have been there
    }
    connect_pause_.cancel();
    if (error) {
      connecting_.reset();
      const bool mute = error == asio::error::operation_aborted;
      TryAgain(DescribeConnectFailure(route, mute ? ETIMEDOUT : error.value()),
               mute);
    } else {
      OnConnected();
    }
  });
}

void Chain::TryAgain(const std::string& why, bool mute) {
  if (last_words_) {
    return;
  }
  // TCP has tried several times by itself.
  const size_t most = mute ? routes_above_.size() : kMostAttempts;
  if (attempts_ >= most) {
    events_.missing(rank_ + 1, why);
    return;
  }
  connect_pause_.expires_after(kFirstPause * (1 << attempts_));
  connect_pause_.async_wait([this](const error_code& error) {
    if (!error) {
      TryAbove();
    }
  });
}

void Chain::OnConnected() {
  AuthenticatedConnection::Socket socket = std::move(*connecting_);
  connecting_.reset();
  DetectDeadHost(socket.native_handle(), tcp_timeout_);
  above_ = Start(std::move(socket), Handshake::Role::kConnector, rank_,
                 {[this] {
                    // The first that it hears from us; any message would do.
                    above_->Send(Question{});
                    Adopt(above_, rank_ + 1, /*heard=*/true);
                  },
                  [](const Message& /*early*/) {},
                  [this](const Status& why) {
                    TryAgain(why.message());
                    events_.ended();
                  }});
}

// --- Both --------------------------------------------------------------------

Chain::Link Chain::Start(AuthenticatedConnection::Socket socket,
                         Handshake::Role role, int lower_rank,
                         AuthenticatedConnection::Events events) {
  Result<Handshake> handshake = Handshake::Create(
      role,
      {job_key_, "bootstrap chain from rank " + std::to_string(lower_rank), "",
       kBootstrapVersion});
  if (!handshake.ok()) {
    return nullptr;
  }
  auto link = std::make_shared<AuthenticatedConnection>(io_, std::move(socket),
                                                        *std::move(handshake));
  link->Start(std::move(events));
  return link;
}

void Chain::Adopt(const Link& link, int rank, bool heard) {
  link->ConfirmPeer();
  const std::weak_ptr<AuthenticatedConnection> weak = link;
  const auto has_spoken = std::make_shared<bool>(heard);
  link->SetEvents({
      [] {},
      [this, weak, rank, has_spoken](const Message& message) {
        *has_spoken = true;
        const auto* notice = std::get_if<AbortNotice>(&message);
        const auto* departure = std::get_if<Departure>(&message);
        if (notice == nullptr && departure == nullptr) {
          return;
        }
        // Either is the last that it says; to close is the answer for which
        // it waits when it leaves.
        if (const Link self = weak.lock()) {
          self->Close();
        }
        if (notice != nullptr) {
          events_.told(notice->reason);
        } else if (departure->calls != Departure::kInOrder) {
          events_.exits({static_cast<uint32_t>(rank), departure->calls,
                         departure->lives_on});
        }
        events_.ended();
      },
      [this, rank, has_spoken](const Status& why) {
        if (*has_spoken) {
          events_.lost(rank, why);
        }
        events_.ended();
      },
      [this] { events_.ended(); },
  });
  if (last_words_) {
    link->Send(*last_words_);
    link->FinishSending();
  }
}

void Chain::SayLast(const Message& message) {
  if (last_words_) {
    return;
  }
  last_words_ = message;
  resolver_.Cancel();
  connecting_.reset();
  connect_pause_.cancel();
  listener_.reset();
  accept_pause_.cancel();
  // With whom the handshake is not over has not heard from us.
  for (const Stranger& stranger : std::exchange(strangers_, {})) {
    stranger.link->Close();
  }
  for (const Link& link : {below_, above_}) {
    if (link != nullptr && link->authenticated()) {
      link->Send(message);
      link->FinishSending();
    } else if (link != nullptr) {
      link->Close();
    }
  }
}

void Chain::CutOff() {
  connecting_.reset();
  listener_.reset();
  for (const Stranger& stranger : strangers_) {
    stranger.link->Close();
  }
  for (const Link& link : {below_, above_}) {
    if (link != nullptr) {
      link->Close();
    }
  }
}

bool Chain::has_sent_last() const {
  const auto has_sent_last = [](const Link& link) {
    return link == nullptr || link->has_sent_last();
  };
  return has_sent_last(below_) && has_sent_last(above_);
}

bool Chain::closed() const {
  const auto is_closed = [](const Link& link) {
    return link == nullptr || link->closed();
  };
  return is_closed(below_) && is_closed(above_);
}

}  // namespace ringpipe
