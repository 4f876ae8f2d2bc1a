// What a rank 0 does whose address another process has.
#ifndef RINGPIPE_BOOTSTRAP_ADDRESS_HOLDER_H_
#define RINGPIPE_BOOTSTRAP_ADDRESS_HOLDER_H_

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <utility>  // before Asio: Boost 1.74 needs it there

#include "auth/handshake.h"
#include "base/status.h"
#include "bootstrap/authenticated_connection.h"
#include "bootstrap/endpoint.h"
#include "bootstrap/message.h"

namespace ringpipe {

// Asks who has an address. If it is rank 0 of a job with the same secret and
// job id, the two jobs could mix; it takes the question for what it is, a
// second rank 0, and ends its own join. On the io_context's one thread.
class AddressHolder : public std::enable_shared_from_this<AddressHolder> {
 public:
  // `answered` is called once: with the holder's reason for refusing `claim`;
  // with ok where the holder is no such rank 0, or says nothing within 1 s.
  static void Ask(boost::asio::io_context* io, const Endpoint& address,
                  bool has_secret, Handshake handshake,
                  const JoinRequest& claim,
                  std::function<void(const Status&)> answered);

  // For Ask.
  AddressHolder(boost::asio::io_context* io, Handshake handshake,
                const JoinRequest& claim,
                std::function<void(const Status&)> answered);

 private:
  void Connect(const Endpoint& address, bool has_secret);
  void OnConnected();
  void Finish(const Status& answer);

  boost::asio::io_context* const io_;
  boost::asio::steady_timer timer_;
  Handshake handshake_;
  const JoinRequest claim_;
  std::function<void(const Status&)> answered_;
  AuthenticatedConnection::Socket socket_;
  std::shared_ptr<AuthenticatedConnection> connection_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_BOOTSTRAP_ADDRESS_HOLDER_H_
