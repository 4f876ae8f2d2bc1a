#include "verbs/soft/network/connector.h"

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/address.hpp>
#include <string>

#include "verbs/soft/context.h"
#include "verbs/soft/network/network.h"
#include "verbs/soft/network/network_loop.h"
#include "verbs/soft/queue_pair.h"

namespace ringpipe::verbs::soft {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{5};
constexpr milliseconds kLongestPause{50};
// The system would try for minutes, in growing intervals: again after 1 s, and
// after 3.
constexpr milliseconds kConnectTimeout{5000};
constexpr char kNoAnswer[] = "no answer";

asio::ip::address AddressOf(const ibv_gid& gid) {
  asio::ip::address_v6::bytes_type bytes;
  std::copy_n(gid.raw, bytes.size(), bytes.begin());
  const asio::ip::address_v6 ipv6(bytes);
  if (!IsIpv4(gid)) {
    return ipv6;
  }
  return asio::ip::address_v4(
      {gid.raw[12], gid.raw[13], gid.raw[14], gid.raw[15]});
}

}  // namespace

Connector::Connector(NetworkLoop* loop, std::weak_ptr<RemotePeer> peer,
                     std::uint32_t qp_index)
    : loop_(loop),
      peer_(std::move(peer)),
      qp_index_(qp_index),
      socket_(loop->io()),
      timer_(loop->io()),
      pause_(kFirstPause) {}

bool Connector::Wanted(const std::shared_ptr<RemotePeer>& peer,
                       std::uint32_t* type) {
  const std::shared_ptr<QueuePair> qp =
      loop_->context().FindQueuePair(qp_index_);
  bool wanted = false;
  if (peer == nullptr || qp == nullptr ||
      !qp->WithRemote(peer.get(), [&wanted](RemotePeer& self) {
        wanted = self.wants_connection();
      })) {
    return false;
  }
  *type = static_cast<std::uint32_t>(qp->type());
  return wanted;
}

void Connector::Try() {
  const std::shared_ptr<RemotePeer> peer = peer_.lock();
  std::uint32_t type = 0;
  if (!Wanted(peer, &type)) {
    return;
  }
  Network& network = loop_->network();
  // Hosts that are one host in truth meet on loopback.
  const bool local = network.IsLocal(peer->peer().gid);
  const asio::ip::address address =
      local ? asio::ip::address_v4::loopback() : AddressOf(peer->peer().gid);
  const tcp::endpoint there(address, network.PortOf(peer->peer().qpn));
  error_code error;
  socket_ = PendingConnection::Socket(loop_->io());
  socket_.open(there.protocol(), error);
  if (!error && !local) {
    // By the path that the user chose: where it says that it comes from.
    socket_.bind({AddressOf(peer->own().gid), 0}, error);
  }
  if (error) {
    TryLater(error.message());
    return;
  }
  timer_.expires_after(kConnectTimeout);
  timer_.async_wait([self = shared_from_this()](const error_code& cancelled) {
    if (!cancelled) {
      error_code ignored;
      self->socket_.close(ignored);
    }
  });
  socket_.async_connect(
      there, [self = shared_from_this(), type](const error_code& failed) {
        self->timer_.cancel();
        const std::shared_ptr<RemotePeer> still = self->peer_.lock();
        if (failed || still == nullptr) {
          self->TryLater(failed == asio::error::operation_aborted
                             ? kNoAnswer
                             : failed.message());
        } else {
          self->OnConnected(still, type);
        }
      });
}

void Connector::OnConnected(const std::shared_ptr<RemotePeer>& peer,
                            std::uint32_t type) {
  error_code ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
  Result<Introduction> introduction = Introduction::ForConnector(
      loop_->network().key(),
      {.from = peer->own(), .to_qpn = peer->peer().qpn, .type = type});
  if (!introduction.ok()) {
    loop_->network().LogDebug(introduction.status().message());
    TryLater(introduction.status().message());
    return;
  }
  std::make_shared<PendingConnection>(
      std::move(socket_), std::move(introduction).value(),
      [self = shared_from_this()](PendingConnection& connection,
                                  const Status& status) {
        const std::shared_ptr<RemotePeer> still = self->peer_.lock();
        if (status.ok() && still != nullptr) {
          self->loop_->Adopt(still, self->qp_index_, connection.TakeSocket(),
                             "");
        } else if (still != nullptr) {
          self->TryLater("handshake: " + status.message());
        }
      })
      ->Start();
}

void Connector::TryLater(const std::string& why) {
  const std::shared_ptr<RemotePeer> peer = peer_.lock();
  const std::shared_ptr<QueuePair> qp =
      loop_->context().FindQueuePair(qp_index_);
  if (peer != nullptr && qp != nullptr) {
    qp->WithRemote(peer.get(),
                   [&why](RemotePeer& self) { self.OnConnectFailed(why); });
  }
  timer_.expires_after(pause_);
  pause_ = std::min(pause_ * 2, kLongestPause);
  timer_.async_wait([self = shared_from_this()](const error_code& error) {
    if (!error) {
      self->Try();
    }
  });
}

}  // namespace ringpipe::verbs::soft
