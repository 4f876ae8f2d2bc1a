#include "bootstrap/address_holder.h"

#include <chrono>
#include <optional>

namespace ringpipe {
namespace {

using boost::system::error_code;

constexpr auto kPatience = std::chrono::seconds(1);

}  // namespace

void AddressHolder::Ask(boost::asio::io_context* io, const Endpoint& address,
                        bool has_secret, Handshake handshake,
                        const JoinRequest& claim,
                        std::function<void(const Status&)> answered) {
  std::make_shared<AddressHolder>(io, std::move(handshake), claim,
                                  std::move(answered))
      ->Connect(address, has_secret);
}

AddressHolder::AddressHolder(boost::asio::io_context* io, Handshake handshake,
                             const JoinRequest& claim,
                             std::function<void(const Status&)> answered)
    : io_(io),
      timer_(*io),
      handshake_(std::move(handshake)),
      claim_(claim),
      answered_(std::move(answered)),
      socket_(*io) {}

void AddressHolder::Connect(const Endpoint& address, bool has_secret) {
  Result<FileDescriptor> fd = OpenConnecting({address, std::nullopt});
  if (!fd.ok()) {
    Finish(Status::Ok());
    return;
  }
  Result<AuthenticatedConnection::Socket> socket =
      AuthenticatedConnection::Own(io_, address.protocol(), *std::move(fd));
  if (!socket.ok()) {
    Finish(Status::Ok());
    return;
  }
  socket_ = std::move(socket).value();
  timer_.expires_after(kPatience);
  timer_.async_wait([self = shared_from_this()](const error_code& error) {
    if (!error) {
      self->Finish(Status::Ok());
    }
  });
  socket_.async_connect(address, [self = shared_from_this(),
                                  has_secret](const error_code& error) {
    if (self->answered_ == nullptr) {
      return;
    }
    // Without a secret only the kernel can say whose process it is.
    if (error ||
        (!has_secret && !CheckPeer(self->socket_.native_handle()).ok())) {
      self->Finish(Status::Ok());
    } else {
      self->OnConnected();
    }
  });
}

void AddressHolder::OnConnected() {
  connection_ = std::make_shared<AuthenticatedConnection>(
      io_, std::move(socket_), std::move(handshake_));
  // The timer keeps this object, and with it the connection; its events do not.
  const std::weak_ptr<AddressHolder> weak = weak_from_this();
  connection_->Start({
      [weak] {
        if (const auto self = weak.lock()) {
          self->connection_->Send(self->claim_);
        }
      },
      [weak](const Message& message) {
        if (const auto self = weak.lock()) {
          const auto* notice = std::get_if<AbortNotice>(&message);
          self->Finish(notice != nullptr ? notice->reason : Status::Ok());
        }
      },
      [weak](const Status& /*closed*/) {
        if (const auto self = weak.lock()) {
          self->Finish(Status::Ok());
        }
      },
  });
}

void AddressHolder::Finish(const Status& answer) {
  if (answered_ == nullptr) {
    return;
  }
  timer_.cancel();
  const auto answered = std::exchange(answered_, nullptr);
  error_code ignored;
  socket_.close(ignored);
  if (connection_ != nullptr) {
    connection_->Close();
  }
  answered(answer);
}

}  // namespace ringpipe
