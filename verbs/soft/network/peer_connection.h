#ifndef RINGPIPE_VERBS_SOFT_PEER_CONNECTION_H_
#define RINGPIPE_VERBS_SOFT_PEER_CONNECTION_H_

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>  // before Asio: Boost 1.74 needs it there
#include <vector>

#include "base/file_descriptor.h"
#include "verbs/soft/network/packet_channel.h"
#include "verbs/soft/network/packet_reader.h"
#include "verbs/soft/network/remote_peer.h"

namespace ringpipe::verbs::soft {

class Context;

// A TCP connection to a known peer. Reads, and continues writes that the socket
// did not take at once, on the network thread; the calls of PacketChannel come
// from any.
class PeerConnection : public PacketChannel,
                       public std::enable_shared_from_this<PeerConnection> {
 public:
  using Socket = KeptFromChildren<boost::asio::ip::tcp::socket>;

  // On the network thread: `parted` is called when the queue pair has let go
  // of the connection, and may have another; `ended` when the peer knows all
  // that it must, or cannot, and the socket is closed.
  PeerConnection(Context* context, std::uint32_t qp_index,
                 std::weak_ptr<RemotePeer> peer, Socket socket,
                 std::function<void()> parted, std::function<void()> ended);

  // Begins to read. On the network thread, after RemotePeer::OnConnected.
  void Start() { AwaitReadable(); }

  ssize_t Send(const iovec* ranges, int count) override;
  std::chrono::milliseconds UnacknowledgedFor() const override;
  void NotifyWhenWritable() override;
  void Finish(std::vector<std::byte> rest) override;

 private:
  // Runs `event` on the peer under its queue pair's mutex. False if there is no
  // longer such a peer.
  template <typename Event>
  bool WithPeer(Event event);
  void AwaitReadable();
  void AwaitWritable();
  void OnReadable();
  void Lose(int error);
  void Linger(std::vector<std::byte> rest);
  void Discard();
  void End();

  Context* const context_;
  const std::uint32_t qp_index_;
  const std::weak_ptr<RemotePeer> peer_;
  Socket socket_;
  const int fd_;  // of socket_, for any thread
  boost::asio::steady_timer timer_;
  std::function<void()> parted_;
  std::function<void()> ended_;
  PacketReader reader_;
  std::atomic<bool> finished_{false};
  std::atomic<int> send_error_{0};  // which the kernel tells once
  bool lost_ = false;               // nobody is there to linger for
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_PEER_CONNECTION_H_
