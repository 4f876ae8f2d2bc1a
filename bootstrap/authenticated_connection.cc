#include "bootstrap/authenticated_connection.h"

#include <unistd.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/write.hpp>
#include <new>
#include <string_view>

namespace ringpipe {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr size_t kReadBytes = 16384;
constexpr size_t kWriteBytes = 65536;
constexpr size_t kStrangersReadBytes = 1024;

// What an error of the socket means: this process's own shortage, or that the
// peer is gone. A stranger must not be able to cause the former.
Status SocketFailure(const char* doing, const error_code& error) {
  if (error == asio::error::no_memory ||
      error == asio::error::no_buffer_space) {
    return ErrnoStatus(StatusCode::kResourceExhausted, doing, error.value());
  }
  // What the kernel knows of why nothing comes back may take the place of the
  // time that is over.
  const bool silent = error == asio::error::timed_out ||
                      error == asio::error::host_unreachable ||
                      error == asio::error::network_unreachable;
  return {
      StatusCode::kPeerLost,
      error.message() + (silent ? ": its host had not answered over TCP for "
                                  "RINGPIPE_TCP_TIMEOUT_MS"
                                : "")};
}

}  // namespace

Result<AuthenticatedConnection::Socket> AuthenticatedConnection::Own(
    asio::io_context* io, const asio::generic::stream_protocol& kind,
    FileDescriptor fd) {
  Socket socket(*io);
  error_code error;
  socket.assign(kind, fd.get(), error);
  if (error) {
    return Status(StatusCode::kResourceExhausted, error.message());
  }
  fd.Release();
  return socket;
}

AuthenticatedConnection::AuthenticatedConnection(asio::io_context* io,
                                                 Socket socket,
                                                 Handshake handshake)
    : socket_(std::move(socket)),
      stranger_timer_(*io),
      handshake_(std::move(handshake)) {}

void AuthenticatedConnection::Start(Events events) {
  events_ = std::move(events);
  stranger_timer_.expires_after(kStrangerTimeout);
  stranger_timer_.async_wait(
      [self = shared_from_this()](const error_code& error) {
        if (!error && !self->closed() && !self->confirmed_) {
          self->Fail({StatusCode::kTimeout,
                      "it did not complete the handshake within 5 s"});
        }
      });
  if (const std::string hello = handshake_.Start(); !hello.empty()) {
    Queue({MakeFrameHeader(hello.size()),
           std::make_shared<const std::string>(hello), ""});
  }
  Read();
}

void AuthenticatedConnection::Send(const Message& message) {
  Send(std::make_shared<const std::string>(EncodeMessage(message)));
}

void AuthenticatedConnection::Send(
    std::shared_ptr<const std::string> encoded_message) {
  if (closed() || !sealer_ || finish_sending_) {
    return;
  }
  Result<Seal> seal = sealer_->SealPayload(*encoded_message);
  if (!seal.ok()) {
    Fail(seal.status());
    return;
  }
  try {
    Queue({seal->header, std::move(encoded_message),
           std::string(AsBytes(seal->mac))});
  } catch (const std::bad_alloc&) {
    Close();  // the peer would miss the frame of this number
    throw;
  }
}

void AuthenticatedConnection::FinishSending() {
  finish_sending_ = true;
  if (!closed() && outgoing_.empty()) {
    Shutdown();
  }
}

void AuthenticatedConnection::Close() {
  events_ = {};
  stranger_timer_.cancel();
  error_code ignored;
  socket_.close(ignored);
}

void AuthenticatedConnection::Read() {
  read_buffer_.resize(authenticated() ? kReadBytes : kStrangersReadBytes);
  socket_.async_read_some(
      asio::buffer(read_buffer_),
      [self = shared_from_this()](const error_code& error, size_t bytes) {
        if (self->closed()) {
          return;
        }
        if (error) {
          self->Fail(SocketFailure("receiving a message", error));
          return;
        }
        self->decoder_.Append(
            std::string_view(self->read_buffer_.data(), bytes));
        if (const Status status = self->TakeFrames(); !status.ok()) {
          self->Fail(status);
        }
        if (!self->closed()) {
          self->Read();
        }
      });
}

Status AuthenticatedConnection::TakeFrames() {
  while (!closed()) {
    RINGPIPE_ASSIGN_OR_RETURN(std::optional<std::string> frame,
                              decoder_.Next());
    if (!frame) {
      return Status::Ok();
    }
    if (!authenticated()) {
      RINGPIPE_RETURN_IF_ERROR(TakeHandshakeMessage(*frame));
      continue;
    }
    RINGPIPE_ASSIGN_OR_RETURN(const std::string payload,
                              opener_->Open(*std::move(frame)));
    RINGPIPE_ASSIGN_OR_RETURN(const Message message, DecodeMessage(payload));
    // A copy: the handler may close the connection and so drop itself.
    const auto received = events_.received;
    received(message);
  }
  return Status::Ok();
}

Status AuthenticatedConnection::TakeHandshakeMessage(
    const std::string& message) {
  RINGPIPE_ASSIGN_OR_RETURN(const std::string answer,
                            handshake_.Receive(message));
  if (!answer.empty()) {
    Queue({MakeFrameHeader(answer.size()),
           std::make_shared<const std::string>(answer), ""});
  }
  if (!handshake_.done()) {
    return Status::Ok();
  }
  RINGPIPE_ASSIGN_OR_RETURN(sealer_, handshake_.Sealer());
  RINGPIPE_ASSIGN_OR_RETURN(opener_, handshake_.Opener());
  decoder_.set_most_payload_bytes(kMostMessageBytes + sizeof(Mac));
  const auto authenticated = events_.authenticated;
  authenticated();
  return Status::Ok();
}

void AuthenticatedConnection::Queue(Outgoing outgoing) {
  outgoing_.push_back(std::move(outgoing));
  if (outgoing_.size() == 1) {
    Write();
  }
}

void AuthenticatedConnection::Write() {
  const Outgoing& first = outgoing_.front();
  const std::array<asio::const_buffer, 3> parts = {asio::buffer(first.header),
                                                   asio::buffer(*first.payload),
                                                   asio::buffer(first.trailer)};
  const auto write_all = [self = shared_from_this()](const error_code& error,
                                                     size_t bytes) -> size_t {
    if (bytes > 0) {
      self->TellSent();
    }
    return error ? 0 : kWriteBytes;
  };
  asio::async_write(
      socket_, parts, write_all,
      [self = shared_from_this()](const error_code& error, size_t /*bytes*/) {
        if (self->closed()) {
          return;
        }
        if (error == asio::error::broken_pipe ||
            error == asio::error::connection_reset) {
          // Why the peer closed, it may have said: let Read find that, and
          // then the end.
          self->outgoing_.clear();
          self->finish_sending_ = true;
          return;
        }
        if (error) {
          self->Fail(SocketFailure("sending a message", error));
          return;
        }
        self->outgoing_.pop_front();
        if (!self->outgoing_.empty()) {
          self->WriteOn();
        } else if (self->finish_sending_) {
          self->Shutdown();
        }
      });
}

void AuthenticatedConnection::WriteOn() {
  try {
    Write();
  } catch (const std::bad_alloc&) {
    Close();  // nothing else would write what is queued
    throw;
  }
}

void AuthenticatedConnection::Fail(const Status& reason) {
  const auto closed = std::move(events_.closed);
  Close();
  if (closed) {
    closed(reason);
  }
}

void AuthenticatedConnection::Shutdown() {
  error_code ignored;
  socket_.shutdown(asio::socket_base::shutdown_send, ignored);
  TellSent();
}

void AuthenticatedConnection::TellSent() {
  // A copy: the handler may close the connection.
  if (const auto sent = events_.sent) {
    sent();
  }
}

}  // namespace ringpipe
