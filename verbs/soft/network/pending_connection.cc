#include "verbs/soft/network/pending_connection.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>
#include <chrono>

namespace ringpipe::verbs::soft {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::chrono::seconds kPatience{5};

}  // namespace

PendingConnection::PendingConnection(Socket socket, Introduction introduction,
                                     Done done)
    : socket_(std::move(socket)),
      timer_(socket_.get_executor()),
      introduction_(std::move(introduction)),
      done_(std::move(done)) {}

void PendingConnection::Start() {
  timer_.expires_after(kPatience);
  timer_.async_wait([self = shared_from_this()](const error_code& error) {
    if (!error) {
      self->Finish({StatusCode::kTimeout,
                    "it did not complete the handshake within 5 s"});
    }
  });
  if (std::string hello = introduction_.Start(); !hello.empty()) {
    Write(std::move(hello));
  }
  Read();
}

void PendingConnection::Close() {
  done_ = nullptr;
  timer_.cancel();
  error_code ignored;
  socket_.close(ignored);
}

void PendingConnection::Finish(const Status& status) {
  if (Done done = std::exchange(done_, nullptr)) {
    timer_.cancel();
    done(*this, status);
  }
  Close();
}

void PendingConnection::Read() {
  const std::size_t most = std::min(introduction_.wanted(), buffer_.size());
  socket_.async_read_some(
      asio::buffer(buffer_.data(), most),
      [self = shared_from_this()](const error_code& error, std::size_t bytes) {
        if (self->done_ == nullptr) {
          return;
        }
        if (error) {
          self->Finish({StatusCode::kPeerLost, error.message()});
          return;
        }
        self->OnRead(bytes);
      });
}

void PendingConnection::OnRead(std::size_t bytes) {
  Result<std::string> answer = introduction_.Receive({buffer_.data(), bytes});
  if (!answer.ok()) {
    Finish(answer.status());
    return;
  }
  if (!answer->empty()) {
    Write(std::move(answer).value());
  }
  if (introduction_.claim() || introduction_.welcomed()) {
    Finish({});
    return;
  }
  Read();
}

void PendingConnection::Write(std::string bytes) {
  // An introduction has no message before the answer to the one before it, so
  // that writes do not meet.
  auto data = std::make_shared<const std::string>(std::move(bytes));
  asio::async_write(
      socket_, asio::buffer(*data),
      [self = shared_from_this(), data](const error_code& error, std::size_t) {
        if (error && self->done_ != nullptr) {
          self->Finish({StatusCode::kPeerLost, error.message()});
        }
      });
}

}  // namespace ringpipe::verbs::soft
