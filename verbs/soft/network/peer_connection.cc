#include "verbs/soft/network/peer_connection.h"

#include <errno.h>
#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <new>
#include <span>

#include "base/tcp_timeout.h"
#include "verbs/soft/context.h"
#include "verbs/soft/queue_pair.h"

namespace ringpipe::verbs::soft {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// Then others have their turn.
constexpr int kReadsAtOnce = 8;
// How long a peer may take to read what was sent before the end.
constexpr std::chrono::seconds kLinger{2};

}  // namespace

PeerConnection::PeerConnection(Context* context, std::uint32_t qp_index,
                               std::weak_ptr<RemotePeer> peer, Socket socket,
                               std::function<void()> parted,
                               std::function<void()> ended)
    : context_(context),
      qp_index_(qp_index),
      peer_(std::move(peer)),
      socket_(std::move(socket)),
      fd_(socket_.native_handle()),
      timer_(socket_.get_executor()),
      parted_(std::move(parted)),
      ended_(std::move(ended)) {}

template <typename Event>
bool PeerConnection::WithPeer(Event event) {
  const std::shared_ptr<RemotePeer> peer = peer_.lock();
  const std::shared_ptr<QueuePair> qp =
      peer != nullptr ? context_->FindQueuePair(qp_index_) : nullptr;
  return qp != nullptr && qp->WithRemote(peer.get(), event);
}

// --- Any thread, under the queue pair's mutex --------------------------------

ssize_t PeerConnection::Send(const iovec* ranges, int count) {
  msghdr message = {};
  message.msg_iov = const_cast<iovec*>(ranges);
  message.msg_iovlen = static_cast<std::size_t>(count);
  ssize_t sent;
  do {
    sent = sendmsg(fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0 || errno == EFAULT) {  // memory that is no longer there
    return sent;
  }
  if (errno != EAGAIN && errno != ENOBUFS) {
    int none = 0;
    send_error_.compare_exchange_strong(none, errno);
  }
  return 0;
}

std::chrono::milliseconds PeerConnection::UnacknowledgedFor() const {
  return ringpipe::UnacknowledgedFor(fd_);
}

void PeerConnection::NotifyWhenWritable() {
  asio::post(socket_.get_executor(),
             [self = shared_from_this()] { self->AwaitWritable(); });
}

void PeerConnection::Finish(std::vector<std::byte> rest) {
  finished_ = true;
  try {
    asio::post(socket_.get_executor(),
               [self = shared_from_this(), rest = std::move(rest)]() mutable {
                 self->Linger(std::move(rest));
               });
  } catch (const std::bad_alloc&) {
    shutdown(fd_, SHUT_RDWR);  // which its handlers see
  }
}

// --- The network thread ------------------------------------------------------

void PeerConnection::AwaitWritable() {
  if (finished_) {
    return;
  }
  socket_.async_wait(
      Socket::wait_write, [self = shared_from_this()](const error_code& error) {
        if (!error && !self->finished_) {
          self->WithPeer([](RemotePeer& peer) { peer.OnWritable(); });
        }
      });
}

void PeerConnection::AwaitReadable() {
  socket_.async_wait(Socket::wait_read,
                     [self = shared_from_this()](const error_code& error) {
                       if (!error && !self->finished_) {
                         self->OnReadable();
                       }
                     });
}

void PeerConnection::OnReadable() {
  for (int i = 0; i < kReadsAtOnce; ++i) {
    const std::span<std::byte> space = reader_.Space();
    const ssize_t got = recv(fd_, space.data(), space.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      break;
    }
    if (got <= 0) {
      const int error = got < 0 ? errno : 0;
      const int send_error = send_error_.load();
      Lose(send_error != 0 && send_error != EPIPE ? send_error : error);
      return;
    }
    reader_.Commit(static_cast<std::size_t>(got));
    bool sane = true;
    const bool there = WithPeer(
        [this, &sane](RemotePeer& peer) { sane = peer.Receive(&reader_); });
    if (!there || finished_) {
      return;
    }
    if (!sane) {
      Lose(EPROTO);  // what came is no packet
      return;
    }
    if (static_cast<std::size_t>(got) < space.size()) {
      break;
    }
  }
  AwaitReadable();
}

void PeerConnection::Lose(int error) {
  lost_ = true;
  WithPeer(
      [this, error](RemotePeer& peer) { peer.OnDisconnected(this, error); });
}

// Closing a socket with unread data makes the kernel throw away what the peer
// has not read yet, a NAK say. So the peer closes first, or time runs out.
void PeerConnection::Linger(std::vector<std::byte> rest) {
  parted_();
  if (lost_) {
    End();
    return;
  }
  timer_.expires_after(kLinger);
  timer_.async_wait([self = shared_from_this()](const error_code& error) {
    if (!error) {
      self->End();
    }
  });
  auto data = std::make_shared<const std::vector<std::byte>>(std::move(rest));
  asio::async_write(
      socket_, asio::buffer(*data),
      [self = shared_from_this(), data](const error_code&, std::size_t) {
        error_code ignored;
        self->socket_.shutdown(Socket::shutdown_send, ignored);
      });
  Discard();
}

void PeerConnection::Discard() {
  reader_.Clear();
  const std::span<std::byte> space = reader_.Space();
  socket_.async_read_some(
      asio::buffer(space.data(), space.size()),
      [self = shared_from_this()](const error_code& error, std::size_t) {
        if (error) {
          self->End();
        } else {
          self->Discard();
        }
      });
}

void PeerConnection::End() {
  timer_.cancel();
  error_code ignored;
  socket_.close(ignored);
  if (std::function<void()> ended = std::exchange(ended_, nullptr)) {
    ended();
  }
}

}  // namespace ringpipe::verbs::soft
