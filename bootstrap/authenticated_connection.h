// One authenticated connection, over TCP or a unix socket.
#ifndef RINGPIPE_BOOTSTRAP_AUTHENTICATED_CONNECTION_H_
#define RINGPIPE_BOOTSTRAP_AUTHENTICATED_CONNECTION_H_

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>  // before Asio: Boost 1.74 needs it there
#include <vector>

#include "auth/frame_decoder.h"
#include "auth/handshake.h"
#include "auth/sealed_frame.h"
#include "base/file_descriptor.h"
#include "base/status.h"
#include "bootstrap/endpoint.h"
#include "bootstrap/message.h"

namespace ringpipe {

// Runs the handshake on a connected socket and then carries messages. All
// members, and all events, on the io_context's one thread.
class AuthenticatedConnection
    : public std::enable_shared_from_this<AuthenticatedConnection> {
 public:
  using Socket =
      KeptFromChildren<boost::asio::generic::stream_protocol::socket>;

  // Any of these may close the connection.
  struct Events {
    std::function<void()> authenticated;  // once
    std::function<void(const Message&)> received;
    // Once, unless Close came before: the connection is gone. kPeerLost if the
    // peer closed it or cannot be reached any more; otherwise it said
    // something wrong.
    std::function<void(const Status&)> closed;
    // The system has taken some of what is sent here; after FinishSending, also
    // that nothing is left. May be empty.
    std::function<void()> sent = nullptr;
  };

  // How long a connection may take until its owner confirms the peer.
  static constexpr auto kStrangerTimeout = std::chrono::seconds(5);

  // `fd` as a socket; kResourceExhausted where the system cannot watch it.
  static Result<Socket> Own(boost::asio::io_context* io,
                            const boost::asio::generic::stream_protocol& kind,
                            FileDescriptor fd);

  AuthenticatedConnection(boost::asio::io_context* io, Socket socket,
                          Handshake handshake);

  void Start(Events events);

  // Whom to tell from now on.
  void SetEvents(Events events) { events_ = std::move(events); }

  // The peer is one of the job's ranks: no time limit any more.
  void ConfirmPeer() {
    confirmed_ = true;  // the timer may have fired, its handler not yet run
    stranger_timer_.cancel();
  }

  // Only when authenticated. Does nothing on a closed connection.
  void Send(std::shared_ptr<const std::string> encoded_message);
  void Send(const Message& message);

  // Sends what is queued, then tells the peer that no more will come. What the
  // peer sends is still received until it closes.
  void FinishSending();

  // At once, without an event.
  void Close();

  // Whether nothing is left that an exit of the process would lose.
  bool has_sent_last() const {
    return closed() || (finish_sending_ && outgoing_.empty());
  }
  // This end of it, while it is not closed.
  Endpoint own_side() { return OwnSide(socket_.native_handle()); }
  bool closed() const { return !socket_.is_open(); }
  bool authenticated() const { return opener_.has_value(); }
  uint32_t peer_version() const { return handshake_.peer_version(); }

 private:
  // A frame on its way out: the payload is shared with other connections.
  struct Outgoing {
    FrameHeader header;
    std::shared_ptr<const std::string> payload;
    std::string trailer;  // its MAC
  };

  void Read();
  Status TakeFrames();
  Status TakeHandshakeMessage(const std::string& message);
  void Queue(Outgoing outgoing);
  void Write();
  void WriteOn();
  void TellSent();
  void Fail(const Status& reason);
  void Shutdown();

  Socket socket_;
  boost::asio::steady_timer stranger_timer_;
  Handshake handshake_;
  Events events_;
  FrameDecoder decoder_{Handshake::kMostMessageBytes};
  std::optional<FrameSealer> sealer_;
  std::optional<FrameOpener> opener_;
  std::deque<Outgoing> outgoing_;  // the first is being written
  bool confirmed_ = false;
  bool finish_sending_ = false;
  // As long as it may be a stranger's, no longer than a stranger may need.
  std::vector<char> read_buffer_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_BOOTSTRAP_AUTHENTICATED_CONNECTION_H_
