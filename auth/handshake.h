// Proves to both ends of a connection that the other knows the secret and means
// the same job, before either acts on what the other says.
//
//   connector                                   acceptor
//     hello: version, nonce, purpose, job  ->
//                                          <-   challenge: version, nonce
//     proof: MAC("connector", hello,
//                challenge)                ->
//                                          <-   proof: MAC("acceptor", hello,
//                                                          challenge)
//
// MACs are HMAC-SHA256 with the secret. The acceptor proves last: a stranger
// who connects gets nothing to guess secrets against. The label keeps one
// role's proof from passing as the other's. Each direction's key for the frames
// that follow is a MAC over the same bytes with a label of its own.
//
// An empty secret is a key like any other: it does not keep out somebody who
// wants in, but it does keep out the wrong job and other programs.
#ifndef RINGPIPE_AUTH_HANDSHAKE_H_
#define RINGPIPE_AUTH_HANDSHAKE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "auth/mac.h"
#include "auth/sealed_frame.h"
#include "base/status.h"

namespace ringpipe {

// One side of a handshake, without its socket: messages in, messages out. Each
// message is the payload of one frame. Not thread-safe.
class Handshake {
 public:
  enum class Role { kConnector, kAcceptor };

  struct Options {
    std::string secret;
    // What the connection is for ("bootstrap") and in which job: both ends
    // must say the same. At most kMostNameBytes each; longer ones are cut.
    std::string purpose;
    std::string job_id;
    // Of the protocol spoken afterwards. Not compared here: a peer with
    // another version is no stranger, and should be told so.
    uint32_t version = 0;
  };

  static constexpr size_t kMostNameBytes = 256;
  // No message of a handshake is longer: the limit for frames until done().
  static constexpr size_t kMostMessageBytes = 1024;

  // With a fresh nonce. kUnavailable as RandomNonce.
  static Result<Handshake> Create(Role role, const Options& options);
  // With a given one, for tests.
  Handshake(Role role, const Options& options, const Nonce& nonce);

  // The connector's first message; the acceptor has none, and gets "".
  std::string Start();

  // Takes the peer's next message and returns the answer to send, or "" if
  // there is none. kInvalidArgument: not a message of this handshake;
  // kMismatch: another job or purpose; kPermissionDenied: another secret. After
  // an error every call fails: close the connection and say nothing.
  Result<std::string> Receive(std::string_view message);

  // Both proofs have been checked here (and the last answer has yet to be
  // sent).
  bool done() const { return state_ == State::kDone; }

  // The rest only when done().
  uint32_t peer_version() const { return peer_version_; }
  // kUnavailable as ComputeMac.
  Result<FrameSealer> Sealer() const;
  Result<FrameOpener> Opener() const;

 private:
  enum class State { kStart, kHello, kChallenge, kProof, kDone, kFailed };

  Result<std::string> ReceiveHello(std::string_view message);
  Result<std::string> ReceiveChallenge(std::string_view message);
  Result<std::string> ReceiveProof(std::string_view message);
  Result<Mac> TranscriptMac(std::string_view label) const;

  Role role_;
  Options options_;
  Nonce nonce_;
  State state_;  // the message that is awaited
  uint32_t peer_version_ = 0;
  std::string hello_;      // as sent or received
  std::string challenge_;  // likewise
};

}  // namespace ringpipe

#endif  // RINGPIPE_AUTH_HANDSHAKE_H_
