#ifndef RINGPIPE_VERBS_SOFT_CONNECTOR_H_
#define RINGPIPE_VERBS_SOFT_CONNECTOR_H_

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>  // before Asio: Boost 1.74 needs it there

#include "verbs/soft/network/pending_connection.h"
#include "verbs/soft/network/remote_peer.h"

namespace ringpipe::verbs::soft {

class NetworkLoop;

// Tries to get a queue pair its connection until it has one or wants none any
// more: the peer may not be there yet, or not be connected yet. Keeps itself
// alive meanwhile. On the network thread.
class Connector : public std::enable_shared_from_this<Connector> {
 public:
  Connector(NetworkLoop* loop, std::weak_ptr<RemotePeer> peer,
            std::uint32_t qp_index);

  void Try();

 private:
  bool Wanted(const std::shared_ptr<RemotePeer>& peer, std::uint32_t* type);
  void OnConnected(const std::shared_ptr<RemotePeer>& peer, std::uint32_t type);
  void TryLater(const std::string& why);

  NetworkLoop* const loop_;
  const std::weak_ptr<RemotePeer> peer_;
  const std::uint32_t qp_index_;
  PendingConnection::Socket socket_;
  boost::asio::steady_timer timer_;
  std::chrono::milliseconds pause_;
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_CONNECTOR_H_
