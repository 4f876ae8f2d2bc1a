// How two ranks of a host give each other their regions, on a unix socket
// (SOCK_SEQPACKET):
//
//   connector                            acceptor
//     its rank, hello                ->
//                                    <-    challenge
//     proof                          ->
//                                    <-    proof
//     region, with its descriptors   ->
//                                    <-    region, with its descriptors
//
// The descriptors are those of the region and, where the ranks trade such, of
// the socket that wakes its owner.
//
// hello, challenge and proofs are those of auth/handshake.h, with the job's key
// as secret. Bound into them are both ranks and the acceptor's address, so that
// nothing of one exchange is good for another. No descriptor goes to, or is
// taken from, whoever has not proven that it knows the key; who runs as which
// user does not matter.
#ifndef RINGPIPE_PIPELINE_HOST_REGION_TRADE_H_
#define RINGPIPE_PIPELINE_HOST_REGION_TRADE_H_

#include <sys/types.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "auth/handshake.h"
#include "base/file_descriptor.h"
#include "base/status.h"
#include "pipeline/host/region.h"

namespace ringpipe {

// What a rank knows of another of its host.
struct RegionPeer {
  std::shared_ptr<Region> region;
  // As the kernel says; 0: of a pid namespace that is not seen from here.
  pid_t pid = 0;
  // Readable once the process is dead; the same for all communicators that have
  // a rank there. nullptr where it is this process, or where the kernel has
  // none.
  std::shared_ptr<const FileDescriptor> pidfd;
  // A datagram to it wakes it; none where the ranks trade none. To be sent with
  // MSG_DONTWAIT: a rank that breaks the rules may have sent another socket.
  FileDescriptor wake;
};

// Who a rank is, and whom it waits for: the same for all its trades.
struct RegionTraders {
  int rank;
  std::string job_key;
  std::shared_ptr<Region> region;
  int wake;                            // -1: the ranks trade none
  std::vector<std::string> addresses;  // by rank; empty: nobody to trade with
};

// One end of one connection. Never blocks. Not thread-safe.
class RegionTrade {
 public:
  enum class State {
    kWaiting,
    kDone,
    kClosed,  // by the peer; or it proved nothing
  };

  // The connector's end; `traders` outlives it. kClosed: not now (try again);
  // kPeerLost: nobody listens there.
  static Result<std::unique_ptr<RegionTrade>> Connect(
      const RegionTraders& traders, int peer);
  // The acceptor's.
  RegionTrade(const RegionTraders& traders, FileDescriptor socket);

  int socket() const { return socket_.get(); }
  State state() const { return state_; }
  bool is_connector() const { return connector_; }
  // -1: it has not said yet. Not to be believed before it is proven().
  int peer() const { return peer_; }
  // Whether the peer has proven that it belongs to the job.
  bool proven() const { return handshake_ && handshake_->done(); }
  // Whose process the peer is, as the kernel says; kNobody where it does not.
  uid_t user() const { return user_; }
  static constexpr uid_t kNobody = static_cast<uid_t>(-1);

  // Where it is kClosed because this process can send no descriptors for now:
  // kResourceExhausted.
  const Status& shortage() const { return shortage_; }

  // Takes one message and answers it. An error is not the peer's closing, nor
  // a stranger at the acceptor's, but the end of the exchange: this process has
  // no more descriptors, or a rank of the job sent something else than a
  // region.
  Status Advance();

  // What has been traded; only once when kDone.
  RegionPeer TakeResult() { return std::move(result_); }

 private:
  using Files = std::array<FileDescriptor, 2>;  // the region's, to wake

  Status StartHandshake(Handshake::Role role);
  Status TakeHello(std::string_view message);
  Status TakeHandshake(std::string_view message);
  Status TakeRegion(std::string_view message, Files files);
  Status OpenPidfd();
  void LearnProcess();
  void Send(std::string_view message);
  void SendRegion();
  Status WithPeer(const Status& status) const;

  const RegionTraders& traders_;
  bool connector_ = false;
  FileDescriptor socket_;
  int peer_ = -1;
  State state_ = State::kWaiting;
  std::optional<Handshake> handshake_;
  uid_t user_ = kNobody;
  Status shortage_;
  RegionPeer result_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_HOST_REGION_TRADE_H_
