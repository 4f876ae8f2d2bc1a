// How the ranks of a job find each other, and keep knowing that all are alive.
#ifndef RINGPIPE_BOOTSTRAP_BOOTSTRAP_H_
#define RINGPIPE_BOOTSTRAP_BOOTSTRAP_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/log.h"
#include "base/status.h"
#include "bootstrap/launcher.h"

namespace ringpipe {

// A star of authenticated connections with rank 0 at its centre, driven by one
// thread of its own (Boost.Asio). Rank 0 listens and relays; it is a rank like
// the others otherwise.
//
// Liveness: a lost connection is a lost rank. It, or the first Abort of any
// rank, ends the job: the first reason reaches every rank, fails every pending
// and later call with that reason, and is given to the failure callback once.
//
// Thread-safe; AllGather and Barrier must be called by all ranks in the same
// order, one call at a time on each.
class Bootstrap {
 public:
  struct Options {
    Launch launch;
    std::string secret;      // empty: none; then only loopback and unix sockets
    Deadline deadline = Deadline::Infinite();  // for Join
    Logger logger;
    // Called once, from Bootstrap's thread, with the reason for which the job
    // failed (also a reason that came from this rank's own Abort). Must not
    // block or call back. Not called for an orderly end.
    std::function<void(const Status&)> on_failure;
  };

  // Returns when all ranks have joined. Errors end every rank's Join: kTimeout
  // lists the missing ranks and the refused connections; kMismatch an
  // authenticated contradiction (size, duplicate rank, version);
  // kInvalidArgument a bad address; kUnavailable an address in use.
  static Result<std::unique_ptr<Bootstrap>> Join(const Options& options);

  // Leaves in order: the other ranks learn that this one is done, and do not
  // take it for dead. A rank that fails later is no longer this one's concern.
  ~Bootstrap();

  int rank() const;
  int size() const;

  // Every rank's blob (at most 1 MiB each), by rank.
  Result<std::vector<std::string>> AllGather(const std::string& blob,
                                             Deadline deadline);
  Status Barrier(Deadline deadline);

  // Ends the job with `reason` unless it has failed before; returns the reason
  // that won as far as this rank knows. Does not wait for the other ranks.
  Status Abort(const Status& reason);

  // Ok, or the reason for which the job failed.
  Status failure() const;

  // Ranks that have left in order.
  std::vector<int> departed() const;

  // Connections that were refused since Join began (strangers, garbage), by
  // reason; for messages and tests.
  int refused_connections() const;

 private:
  class Session;
  explicit Bootstrap(std::unique_ptr<Session> session);
  std::unique_ptr<Session> session_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_BOOTSTRAP_BOOTSTRAP_H_
