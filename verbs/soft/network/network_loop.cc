#include "verbs/soft/network/network_loop.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <new>
#include <string>
#include <system_error>

#include "base/signals_blocked.h"
#include "base/tcp_timeout.h"
#include "verbs/soft/context.h"
#include "verbs/soft/network/connector.h"
#include "verbs/soft/network/network.h"
#include "verbs/soft/network/peer_connection.h"
#include "verbs/soft/queue_pair.h"

namespace ringpipe::verbs::soft {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Connections that have not proved who they are. One more, and the oldest has
// to go: it had the longest time to say something.
constexpr std::size_t kMostStrangers = 64;
// What the end of a context waits for peers to take.
constexpr std::chrono::milliseconds kStopPatience{200};
// Where a connection cannot be accepted for want of descriptors, say.
constexpr std::chrono::milliseconds kAcceptPause{50};

}  // namespace

NetworkLoop::NetworkLoop(Context* context, Network* network)
    : context_(context),
      network_(network),
      work_(asio::make_work_guard(io_)),
      stop_timer_(io_) {}

std::unique_ptr<NetworkLoop> NetworkLoop::Start(Context* context,
                                                Network* network) {
  const SignalsBlocked blocked;
  std::unique_ptr<NetworkLoop> loop;
  try {
    loop.reset(new NetworkLoop(context, network));
    if (loop->AddListeners()) {
      loop->thread_ = std::thread([raw = loop.get()] {
        pthread_setname_np(pthread_self(), "ringpipe-tcp");
        raw->Run();
      });
    } else {
      loop = nullptr;
    }
  } catch (const std::system_error& error) {  // no thread, no descriptor
    loop = nullptr;
    errno = error.code().value();
  } catch (const boost::system::system_error& error) {
    loop = nullptr;
    errno = error.code().value();
  } catch (const std::bad_alloc&) {
    loop = nullptr;
    errno = ENOMEM;
  }
  return loop;
}

bool NetworkLoop::AddListeners() {
  for (const FileDescriptor& listener : network_->listeners()) {
    sockaddr_storage address;
    socklen_t length = sizeof address;
    if (getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address),
                    &length) != 0) {
      return false;
    }
    acceptors_.push_back(std::make_unique<Acceptor>(&io_));
    FileDescriptor copy(fcntl(listener.get(), F_DUPFD_CLOEXEC, 0));
    if (!copy) {
      return false;
    }
    error_code error;
    acceptors_.back()->socket.assign(
        address.ss_family == AF_INET ? tcp::v4() : tcp::v6(), copy.get(),
        error);
    if (error) {
      errno = error.value();
      return false;
    }
    copy.Release();
    Accept(acceptors_.back().get());
  }
  return true;
}

void NetworkLoop::Run() {
  while (!io_.stopped() && loop_.is_intact()) {
    try {
      loop_.Run();
    } catch (const std::exception&) {
      // No memory: what was being done is lost, and a connection with it that
      // nobody reads any more. The peer's timeout tells, unless TCP is
      // believed.
      if (context_->options().tcp_timeout.count() > 0) {
        FailAll();
      }
    }
  }
}

void NetworkLoop::FailAll() {
  for (std::uint32_t index = 0; index < kMaxQueuePairs; ++index) {
    try {
      if (const auto qp = context_->FindQueuePair(index)) {
        qp->Fail(/*event=*/-1);
      }
    } catch (const std::bad_alloc&) {
      // It is in error all the same.
    }
  }
}

void NetworkLoop::Stop() {
  if (!loop_.is_intact()) {
    thread_.join();  // it ends by itself
    return;
  }
  try {
    asio::post(io_, [this] {
      stopping_ = true;
      if (lingering_ == 0) {
        io_.stop();
        return;
      }
      stop_timer_.expires_after(kStopPatience);
      stop_timer_.async_wait([this](const error_code&) { io_.stop(); });
    });
  } catch (const std::bad_alloc&) {
    io_.stop();
  }
  thread_.join();
}

// --- Connections that peers make ---------------------------------------------

void NetworkLoop::Accept(Acceptor* acceptor) {
  acceptor->socket.async_accept([this, acceptor](const error_code& error,
                                                 tcp::socket socket) {
    if (stopping_) {
      return;
    }
    if (!error) {
      Accept(acceptor);  // whatever becomes of this one
      Meet(PendingConnection::Socket(std::move(socket)));
      return;
    }
    acceptor->pause.expires_after(kAcceptPause);
    acceptor->pause.async_wait([this, acceptor](const error_code& cancelled) {
      if (!cancelled && !stopping_) {
        Accept(acceptor);
      }
    });
  });
}

void NetworkLoop::Meet(PendingConnection::Socket socket) {
  Result<Introduction> introduction =
      Introduction::ForAcceptor(network_->key());
  if (!introduction.ok()) {
    network_->LogDebug(introduction.status().message());
    return;
  }
  ForgetDone();
  if (strangers_.size() >= kMostStrangers) {
    if (const auto oldest = strangers_.front().lock()) {
      oldest->Close();
    }
    strangers_.pop_front();
  }
  auto stranger = std::make_shared<PendingConnection>(
      std::move(socket), std::move(introduction).value(),
      [this](PendingConnection& self, const Status& status) {
        OnClaim(self, status);
      });
  strangers_.push_back(stranger);
  stranger->Start();
}

void NetworkLoop::ForgetDone() {
  std::erase_if(strangers_, [](const std::weak_ptr<PendingConnection>& one) {
    const auto stranger = one.lock();
    return stranger == nullptr || stranger->done();
  });
}

void NetworkLoop::OnClaim(PendingConnection& stranger, const Status& status) {
  if (status.code() == StatusCode::kPeerLost) {
    // It went without having said anything wrong: a peer whose job ended, say,
    // or who had waited for this end for too long.
    network_->LogDebug("a connection over TCP was given up by its other end: " +
                       status.message());
    return;
  }
  if (!status.ok()) {
    network_->OnStranger(status);
    return;
  }
  const Introduction::Claim& claim = *stranger.introduction().claim();
  const std::shared_ptr<QueuePair> qp =
      context_->FindQueuePair(IndexOf(claim.to_qpn));
  Result<std::string> welcome = stranger.introduction().Welcome();
  if (qp == nullptr || qp->number() != claim.to_qpn ||
      static_cast<std::uint32_t>(qp->type()) != claim.type || !welcome.ok()) {
    return;  // not there, or not yet: the peer tries again
  }
  if (const std::shared_ptr<RemotePeer> peer = qp->FindRemote(claim.from)) {
    Adopt(peer, qp->index(), stranger.TakeSocket(), *welcome);
  }
}

// --- Connections that this end makes -----------------------------------------

void NetworkLoop::Connect(const std::weak_ptr<RemotePeer>& peer,
                          std::uint32_t qp_index) {
  if (!loop_.is_intact()) {
    return;
  }
  asio::post(io_, [this, peer, qp_index] {
    if (!stopping_) {
      std::make_shared<Connector>(this, peer, qp_index)->Try();
    }
  });
}

// --- Both --------------------------------------------------------------------

bool NetworkLoop::Adopt(const std::shared_ptr<RemotePeer>& peer,
                        std::uint32_t qp_index,
                        PendingConnection::Socket socket,
                        const std::string& first) {
  const std::shared_ptr<QueuePair> qp = context_->FindQueuePair(qp_index);
  if (stopping_ || qp == nullptr) {
    return false;
  }
  error_code error;
  socket.set_option(tcp::no_delay(true), error);
  socket.native_non_blocking(true, error);
  if (const auto timeout = context_->options().tcp_timeout;
      timeout.count() > 0) {
    ProbeIdleConnection(socket.native_handle(), timeout);
  }
  // A fresh socket takes these few bytes. Without the acceptor's, the connector
  // tries again; it has none itself.
  if (!first.empty() &&
      send(socket.native_handle(), first.data(), first.size(),
           MSG_DONTWAIT | MSG_NOSIGNAL) != static_cast<ssize_t>(first.size())) {
    return false;
  }
  const std::weak_ptr<RemotePeer> weak = peer;
  const auto parted = [this, weak, qp_index] {
    ++lingering_;
    const std::shared_ptr<RemotePeer> left = weak.lock();
    if (left != nullptr && left->connects()) {
      Connect(weak, qp_index);
    }
  };
  const auto ended = [this] {
    if (--lingering_ == 0 && stopping_) {
      io_.stop();
    }
  };
  const auto connection = std::make_shared<PeerConnection>(
      context_, qp_index, weak, std::move(socket), parted, ended);
  if (!qp->WithRemote(peer.get(), [&connection](RemotePeer& self) {
        self.OnConnected(connection);
      })) {
    return false;
  }
  connection->Start();
  return true;
}

}  // namespace ringpipe::verbs::soft
