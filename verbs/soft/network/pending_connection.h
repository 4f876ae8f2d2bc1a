#ifndef RINGPIPE_VERBS_SOFT_PENDING_CONNECTION_H_
#define RINGPIPE_VERBS_SOFT_PENDING_CONNECTION_H_

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>  // before Asio: Boost 1.74 needs it there

#include "base/file_descriptor.h"
#include "base/status.h"
#include "verbs/soft/network/introduction.h"

namespace ringpipe::verbs::soft {

// A TCP connection of which the other end is still a stranger. On the network
// thread.
class PendingConnection
    : public std::enable_shared_from_this<PendingConnection> {
 public:
  using Socket = KeptFromChildren<boost::asio::ip::tcp::socket>;
  // Called once: at the acceptor when the claim is there, at the connector when
  // it was welcomed; or with what is wrong, kTimeout after 5 s included.
  using Done = std::function<void(PendingConnection&, const Status&)>;

  // `socket` is connected.
  PendingConnection(Socket socket, Introduction introduction, Done done);

  void Start();
  bool done() const { return done_ == nullptr; }
  // Done is not called any more.
  void Close();

  Introduction& introduction() { return introduction_; }
  Socket TakeSocket() { return std::move(socket_); }

 private:
  void Read();
  void OnRead(std::size_t bytes);
  void Write(std::string bytes);
  void Finish(const Status& status);

  Socket socket_;
  boost::asio::steady_timer timer_;
  Introduction introduction_;
  Done done_;
  std::array<char, 1024> buffer_;
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_PENDING_CONNECTION_H_
