#include "bootstrap/address_holder.h"

#include <chrono>

#include "base/name_filter.h"

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
  const Result<int> fd = OpenConnecting(address, NameFilter());
  if (!fd.ok()) {
    Finish(Status::Ok());
    return;
  }
  error_code failed;
  socket_.assign(address.protocol(), fd.value(), failed);
  timer_.expires_after(kPatience);
  timer_.async_wait([self = shared_from_this()](const error_code& error) {
    if (!error) {
      self->Finish(Status::Ok());
    }
  });
  socket_.async_connect(address, [self = shared_from_this(),
                                  has_secret](const error_code& error) {
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
  connection_ = std::make_shared<Connection>(io_, std::move(socket_),
                                             std::move(handshake_));
  const std::shared_ptr<AddressHolder> self = shared_from_this();
  connection_->Start({
      [self] { self->connection_->Send(self->claim_); },
      [self](const Message& message) {
        const auto* notice = std::get_if<AbortNotice>(&message);
        self->Finish(notice != nullptr ? notice->reason : Status::Ok());
      },
      [self](const Status& /*closed*/) { self->Finish(Status::Ok()); },
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
    connection_->Close();  // which also drops the events, and so this object
  }
  answered(answer);
}

}  // namespace ringpipe
