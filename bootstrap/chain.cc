#include "bootstrap/chain.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
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
    for (const Endpoint& endpoint : ListeningEndpoints(interfaces, 0)) {
      if (!IsLocal(endpoint)) {
        return AsTcp(endpoint);
      }
    }
  }
  return std::nullopt;
}

}  // namespace

Chain::Chain(asio::io_context* io, int rank, int size)
    : io_(io), rank_(rank), size_(size), resolver_(io) {}

// --- The rank below connects -------------------------------------------------

Result<std::string> Chain::Listen(const Address& root, const Endpoint& own_side,
                                  const NameFilter& interfaces) {
  if (!has_below()) {
    return std::string();
  }
  Address contact = root;
  std::vector<Endpoint> places = ListeningEndpoints(NameFilter(), 0);
  if (root.unix_socket) {
    RINGPIPE_ASSIGN_OR_RETURN(contact.host, NewUnixName());
    places = {UnixEndpoint(contact.host)};
  } else if (const std::optional<tcp::endpoint> address =
                 ReachableAddress(root, own_side, interfaces)) {
    contact.host = address->address().to_string();
    places = {*address};
  }
  Result<int> fd = OpenListening(places.front());
  if (!fd.ok() && places.size() > 1) {
    fd = OpenListening(places.back());  // a kernel may have no IPv6
  }
  RINGPIPE_RETURN_IF_ERROR(fd.status());
  listener_.emplace(*io_, *fd);
  if (!root.unix_socket) {
    contact.port = AsTcp(OwnSide(*fd)).port();
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

void Chain::Accept() {
  const int fd = AcceptFrom(listener_->native_handle());
  if (fd >= 0) {
    DetectDeadHost(fd);
    Connection::Socket socket(*io_);
    error_code error;
    socket.assign(OwnSide(fd).protocol(), fd, error);
    if (strangers_.size() >= kMostStrangers) {
      strangers_.front()->Close();
      strangers_.pop_front();
    }
    const Link stranger = Start(
        std::move(socket), Handshake::Role::kAcceptor, rank_ - 1,
        [this](const Link& link) {
          listener_.reset();
          Adopt(link, rank_ - 1);
          below_ = link;
          for (const Link& other : std::exchange(strangers_, {})) {
            if (other != link) {
              other->Close();
            }
          }
        },
        [this](const Status& /*why*/) { events_.closed(); });
    if (stranger != nullptr) {
      strangers_.push_back(stranger);
    }
  }
  WaitToAccept();
}

// --- The rank above is connected to ------------------------------------------

void Chain::Connect(const std::string& job_key,
                    const std::string& contact_above,
                    const NameFilter& interfaces, Events events) {
  job_key_ = job_key;
  events_ = std::move(events);
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
    OnEndpoints(std::vector<Endpoint>{UnixEndpoint(address->host)}, interfaces);
  } else {
    resolver_.Resolve(
        address->host, address->port,
        [this, interfaces](const Result<std::vector<Endpoint>>& endpoints) {
          OnEndpoints(endpoints, interfaces);
        });
  }
}

void Chain::OnEndpoints(const Result<std::vector<Endpoint>>& endpoints,
                        const NameFilter& interfaces) {
  if (!endpoints.ok()) {
    events_.missing(rank_ + 1, endpoints.status().message());
    return;
  }
  const Endpoint& there = endpoints->front();
  const Result<int> fd = OpenConnecting(there, interfaces);
  if (!fd.ok()) {
    events_.missing(rank_ + 1, fd.status().message());
    return;
  }
  connecting_.emplace(*io_, there.protocol(), *fd);
  connecting_->async_connect(there, [this](const error_code& error) {
    if (!error) {
      OnConnected();
    } else if (error != asio::error::operation_aborted) {
      events_.missing(rank_ + 1, error.message());
    }
  });
}

void Chain::OnConnected() {
  DetectDeadHost(connecting_->native_handle());
  above_ = Start(
      std::move(*connecting_), Handshake::Role::kConnector, rank_,
      [this](const Link& link) { Adopt(link, rank_ + 1); },
      [this](const Status& why) {
        events_.missing(rank_ + 1, why.message());
        events_.closed();
      });
  connecting_.reset();
}

// --- Both --------------------------------------------------------------------

Chain::Link Chain::Start(Connection::Socket socket, Handshake::Role role,
                         int lower_rank,
                         std::function<void(const Link&)> authenticated,
                         std::function<void(const Status&)> failed) {
  Result<Handshake> handshake = Handshake::Create(
      role, {job_key_, "bootstrap chain from rank " + std::to_string(lower_rank),
             "", kBootstrapVersion});
  if (!handshake.ok()) {
    failed(handshake.status());
    return nullptr;
  }
  const auto link = std::make_shared<Connection>(io_, std::move(socket),
                                                 *std::move(handshake));
  link->Start({
      [weak = std::weak_ptr<Connection>(link),
       authenticated = std::move(authenticated)] {
        if (const Link self = weak.lock()) {
          authenticated(self);
        }
      },
      [](const Message& /*early*/) {},
      std::move(failed),
  });
  return link;
}

void Chain::Adopt(const Link& link, int rank) {
  link->ConfirmPeer();
  const std::weak_ptr<Connection> weak = link;
  link->SetEvents({
      [] {},
      [this, weak](const Message& message) {
        // Either is the last that it says; to close is the answer for which
        // it waits when it leaves.
        if (const Link self = weak.lock()) {
          self->Close();
        }
        if (const auto* notice = std::get_if<AbortNotice>(&message)) {
          events_.told(notice->reason);
        }
        events_.closed();
      },
      [this, rank](const Status& why) {
        events_.lost(rank, why);
        events_.closed();
      },
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
  listener_.reset();
  for (const Link& link : {below_, above_}) {
    if (link != nullptr && link->authenticated()) {
      link->Send(message);
      link->FinishSending();
    }
  }
}

bool Chain::closed() const {
  const auto is_closed = [](const Link& link) {
    return link == nullptr || link->closed();
  };
  return is_closed(below_) && is_closed(above_) &&
         std::all_of(strangers_.begin(), strangers_.end(), is_closed);
}

}  // namespace ringpipe
