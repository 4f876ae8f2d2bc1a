#ifndef RINGPIPE_VERBS_SOFT_NETWORK_LOOP_H_
#define RINGPIPE_VERBS_SOFT_NETWORK_LOOP_H_

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <utility>  // before Asio: Boost 1.74 needs it there
#include <vector>

#include "base/file_descriptor.h"
#include "base/io_loop.h"
#include "verbs/soft/network/pending_connection.h"
#include "verbs/soft/network/remote_peer.h"

namespace ringpipe::verbs::soft {

class Connector;
class Context;
class Network;

// The network thread of a context, and what runs on it: accepts and makes
// connections. What has no comment on threads is for that thread.
class NetworkLoop {
 public:
  // nullptr where the system has no thread to give.
  static std::unique_ptr<NetworkLoop> Start(Context* context, Network* network);
  // Any thread. What is due to peers is sent first, for a bounded time.
  void Stop();
  // Any thread: as Network::Connect.
  void Connect(const std::weak_ptr<RemotePeer>& peer, std::uint32_t qp_index);

  boost::asio::io_context& io() { return io_; }
  Context& context() { return *context_; }
  Network& network() { return *network_; }

  // Gives the queue pair of that index, if its peer is still `peer`, the
  // connection, and sends `first` on it before all else.
  bool Adopt(const std::shared_ptr<RemotePeer>& peer, std::uint32_t qp_index,
             PendingConnection::Socket socket, const std::string& first);

 private:
  void Run();
  void FailAll();
  struct Acceptor {
    explicit Acceptor(boost::asio::io_context* io) : socket(*io), pause(*io) {}

    KeptFromChildren<boost::asio::ip::tcp::acceptor> socket;
    boost::asio::steady_timer pause;
  };

  NetworkLoop(Context* context, Network* network);
  bool AddListeners();
  void Accept(Acceptor* acceptor);
  void Meet(PendingConnection::Socket socket);
  void OnClaim(PendingConnection& stranger, const Status& status);
  void ForgetDone();

  Context* const context_;
  Network* const network_;
  IoLoop loop_;
  boost::asio::io_context& io_ = loop_.context();
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type>
      work_;
  boost::asio::steady_timer stop_timer_;
  std::vector<std::unique_ptr<Acceptor>> acceptors_;
  std::deque<std::weak_ptr<PendingConnection>> strangers_;  // oldest first
  int lingering_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_NETWORK_LOOP_H_
