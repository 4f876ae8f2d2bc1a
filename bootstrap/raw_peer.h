// A process that connects to rank 0 and says what the test wants: a stranger,
// or a rank that breaks the rules. Blocking, with a bound on every wait.
#ifndef RINGPIPE_BOOTSTRAP_RAW_PEER_H_
#define RINGPIPE_BOOTSTRAP_RAW_PEER_H_

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "auth/frame_decoder.h"
#include "auth/handshake.h"
#include "auth/sealed_frame.h"
#include "base/deadline.h"
#include "bootstrap/endpoint.h"
#include "bootstrap/message.h"

namespace ringpipe {

class RawPeer {
 public:
  // Connects to the abstract unix socket `name`, once somebody listens there.
  explicit RawPeer(const std::string& name) : RawPeer(UnixEndpoint(name)) {}
  explicit RawPeer(const Endpoint& there) {
    const Deadline deadline = Deadline::After(std::chrono::seconds(10));
    fd_ = socket(there.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
    const timeval limit = {20, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    while (connect(fd_, there.data(), there.size()) != 0 &&
           !deadline.expired()) {
      std::this_thread::yield();
    }
  }
  RawPeer(RawPeer&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~RawPeer() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }

  // Before each read of at most 4 KiB.
  void set_pause(std::chrono::milliseconds pause) { pause_ = pause; }

  void SendBytes(std::string_view bytes) const {
    (void)send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }

  // True when rank 0 has closed the connection, without a word or after some.
  bool WaitForClose() const {
    char buffer[4096];
    ssize_t bytes = 1;
    while (bytes > 0) {
      bytes = recv(fd_, buffer, sizeof(buffer), 0);
    }
    return bytes == 0 || errno == ECONNRESET;
  }

  // Whether rank 0 accepts the handshake.
  bool Authenticate(const Handshake::Options& options) {
    Handshake handshake =
        Handshake::Create(Handshake::Role::kConnector, options).value();
    std::string message = handshake.Start();
    while (!handshake.done()) {
      SendBytes(EncodeFrame(message));
      const std::optional<std::string> reply = ReceiveFrame();
      if (!reply) {
        return false;
      }
      Result<std::string> next = handshake.Receive(*reply);
      if (!next.ok()) {
        return false;
      }
      message = next.value();
    }
    sealer_ = handshake.Sealer().value();
    opener_ = handshake.Opener().value();
    return true;
  }

  // Only after Authenticate.
  void Send(const Message& message) {
    const std::string payload = EncodeMessage(message);
    const Seal seal = sealer_->SealPayload(payload).value();
    SendBytes(std::string(seal.header.data(), seal.header.size()) + payload +
              std::string(AsBytes(seal.mac)));
  }
  Result<Message> Receive() {
    std::optional<std::string> frame = ReceiveFrame();
    if (!frame) {
      return Status(StatusCode::kPeerLost, "closed");
    }
    RINGPIPE_ASSIGN_OR_RETURN(const std::string payload,
                              opener_->Open(*std::move(frame)));
    return DecodeMessage(payload);
  }

 private:
  std::optional<std::string> ReceiveFrame() {
    for (;;) {
      const Result<std::optional<std::string>> frame = decoder_.Next();
      if (!frame.ok() || frame.value()) {
        return frame.ok() ? frame.value() : std::nullopt;
      }
      std::this_thread::sleep_for(pause_);
      char buffer[4096];
      const ssize_t bytes = recv(fd_, buffer, sizeof(buffer), 0);
      if (bytes <= 0) {
        return std::nullopt;
      }
      decoder_.Append(std::string_view(buffer, bytes));
    }
  }

  int fd_ = -1;
  std::chrono::milliseconds pause_{0};
  FrameDecoder decoder_{kMostMessageBytes + 64};
  std::optional<FrameSealer> sealer_;
  std::optional<FrameOpener> opener_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_BOOTSTRAP_RAW_PEER_H_
