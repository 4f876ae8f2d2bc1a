#ifndef RINGPIPE_VERBS_SOFT_INTRODUCTION_H_
#define RINGPIPE_VERBS_SOFT_INTRODUCTION_H_

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "auth/handshake.h"
#include "auth/sealed_frame.h"
#include "base/status.h"
#include "verbs/soft/network/queue_pair_address.h"

namespace ringpipe::verbs::soft {

// How a TCP connection between two software devices begins, without its socket:
// bytes in, bytes out.
//
//   connector                                acceptor
//     auth/handshake.h, both ways
//     claim: from which queue pair,      ->  is that one connected to this one?
//       to which                         <-  welcome; or it hangs up
//
// The frames are sealed, so nobody on the path can change a claim. What follows
// is not: who can alter packets on their way is not kept out.
//
// Not thread-safe.
class Introduction {
 public:
  struct Claim {
    QueuePairAddress from;
    std::uint32_t to_qpn = 0;
    std::uint32_t type = IBV_QPT_RC;  // ibv_qp_type
  };

  // kUnavailable as Handshake::Create.
  static Result<Introduction> ForConnector(const std::string& key,
                                           const Claim& claim);
  static Result<Introduction> ForAcceptor(const std::string& key);

  // The first bytes to send; the acceptor has none.
  std::string Start();

  // How many bytes Receive wants next, at least 1. What comes after them is for
  // somebody else.
  std::size_t wanted() const;
  // Takes at most that many, and returns what to send, which may be nothing.
  // After an error close the connection.
  Result<std::string> Receive(std::string_view bytes);

  // The acceptor's decision: what it was told, and what it then sends.
  const std::optional<Claim>& claim() const { return claim_; }
  Result<std::string> Welcome();

  // The connector was welcomed.
  bool welcomed() const { return welcomed_; }

 private:
  Introduction(bool connects, const Claim& claim, Handshake handshake);
  Result<std::string> ReceiveFrame(std::string payload);
  Result<std::string> Seal(const std::string& payload);
  Status Open(std::string payload);

  const bool connects_;
  Claim own_claim_;
  Handshake handshake_;
  std::optional<FrameSealer> sealer_;
  std::optional<FrameOpener> opener_;
  std::string frame_;  // the begun one, its header included
  std::optional<Claim> claim_;
  bool welcomed_ = false;
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_INTRODUCTION_H_
