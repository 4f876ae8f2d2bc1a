#ifndef RINGPIPE_PIPELINE_HOST_REGION_EXCHANGE_H_
#define RINGPIPE_PIPELINE_HOST_REGION_EXCHANGE_H_

#include <poll.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/status.h"
#include "pipeline/host/region.h"
#include "pipeline/host/region_trade.h"
#include "pipeline/host/strangers.h"

namespace ringpipe {

// Gives the ranks of a host each other's regions, all at the same time: each
// calls Create, tells the others its Address() in a way that they trust, and
// calls Run. The lower rank of two connects to the higher.
//
// Strangers may connect as well, since the names of such sockets are seen by
// everybody. They get nothing, and keep nobody waiting: where too many have
// connected and proven nothing, the user who has most of these connections
// loses its oldest. That hits no rank, unless strangers are of its own user, or
// of many users and it is of another user than this rank; it tries again then.
// Not thread-safe.
class RegionExchange {
 public:
  // Listens from now on. `job_key`: what only ranks of the job know; `own`: the
  // region that the others get; `wake`: a datagram socket that they get with
  // it, which outlives the exchange, or -1 on all ranks. Errors are of the
  // system: no descriptor, no entropy.
  static Result<std::unique_ptr<RegionExchange>> Create(
      int rank, std::string job_key, std::shared_ptr<Region> own,
      int wake = -1);
  RegionExchange(const RegionExchange&) = delete;
  RegionExchange& operator=(const RegionExchange&) = delete;

  // Printable; for this network namespace.
  std::string Address() const { return address_; }

  // `addresses` are by rank, empty for ranks that are not on this host; this
  // rank's own is not looked at. The result is by rank too, and empty for the
  // same ones. All regions must have headers at least as long as this rank's.
  //
  // kTimeout names the ranks that did not come by the deadline;
  // kResourceExhausted too, where this rank lacked what it needs; kAborted:
  // `abort_fd` (-1: none) became readable; kPeerLost: a rank does not listen
  // any more; kPermissionDenied: somebody else does in its place. Only one
  // call; nobody listens after it.
  Result<std::vector<RegionPeer>> Run(std::span<const std::string> addresses,
                                      Deadline deadline, int abort_fd);

  // Connections that were closed here, or by the other end, without a proof.
  std::uint64_t strangers() const { return strangers_.count(); }

 private:
  // A peer, as long as there is something to do for it.
  struct Attempt {
    bool missing = false;  // its region has not come
    bool open = false;     // a connection to it is under way
    int closed = 0;        // earlier ones, by the peer
    Status shortage;       // the last one
    Clock::time_point not_before;
    Clock::duration retry_after{};
  };

  RegionExchange(RegionTraders traders, std::string address,
                 FileDescriptor listener);

  Status SetPeers(std::span<const std::string> addresses);
  Result<bool> Step(Deadline deadline, int abort_fd);
  Status ConnectToSome();
  int PollTimeoutMs(Deadline deadline) const;
  Status AcceptSome();
  Status AdvanceSome();
  void NoteOutcome(RegionTrade& trade);
  void Delay(Attempt& attempt);
  bool AllowFewerStrangers();
  void CloseTooManyStrangers();
  Status TimedOut();
  void Finish();

  RegionTraders traders_;
  const std::string address_;
  FileDescriptor listener_;
  std::vector<Attempt> attempts_;  // by rank
  std::vector<RegionPeer> peers_;  // by rank
  std::size_t missing_ = 0;
  std::size_t connecting_ = 0;
  std::size_t most_unproven_ = 0;  // connections of strangers, or of ranks yet
  std::vector<std::unique_ptr<RegionTrade>> trades_;  // oldest first
  std::vector<pollfd> waits_;  // abort, listener, then as trades_
  Strangers strangers_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_HOST_REGION_EXCHANGE_H_
