// How the ranks of a job find each other, and keep knowing that all are alive.
#ifndef RINGPIPE_BOOTSTRAP_BOOTSTRAP_H_
#define RINGPIPE_BOOTSTRAP_BOOTSTRAP_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/log.h"
#include "base/name_filter.h"
#include "base/status.h"
#include "bootstrap/launcher.h"
#include "bootstrap/store.h"

namespace ringpipe {

class Session;

// "1, 3 to 5, 9"; names at most 16 runs of ranks.
std::string FormatRanks(const std::set<int>& ranks);

// A star of authenticated connections with rank 0 at its centre, driven by one
// thread of its own (Boost.Asio). Rank 0 listens and relays; it is a rank like
// the others otherwise. Besides, the others are a chain: 1 to 2, 2 to 3, and so
// on, by which the news of a failure travels also while rank 0 is stopped.
//
// Liveness: a lost connection is a lost rank. It, the first Abort of any rank,
// or an AllGather or Barrier that not all ranks reach by its deadline, ends the
// job: the first reason reaches every rank, fails every pending and later call
// with that reason, and is given to the failure callback once. A rank that is
// stopped (SIGSTOP) is not lost, and one that says that it leaves, or that its
// process exits, is not either. A rank's children that keep its descriptors
// (fork without exec) keep its connection open, and so hide its death.
//
// Who may join: only a process that proves in the handshake (auth/handshake.h)
// to have the same secret and job id. Without a secret there is only a unix
// socket, between processes of one user, for which the kernel vouches. Whoever
// fails is closed, logged and counted, and hurts nobody: at most 512 such
// connections (fewer where ulimit -n is low) are open at once, for at most 5 s,
// in which at most 1 KiB a message is taken.
//
// Join, AllGather and Barrier fail with kAborted, and so does the job, if the
// function of the caller's BlockingCall (base/while_waiting.h) ends them.
//
// Thread-safe, but for the destructor; AllGather and Barrier must be called by
// all ranks in the same order, one call at a time on each.
class Bootstrap {
 public:
  struct Options {
    Launch launch;
    std::string secret;  // empty: none; then only unix sockets
    // Carries rank 0's addresses to the others and, unless `secret` is given, a
    // new secret. launch.root then says only where rank 0 listens: its port may
    // be 0, for one that the kernel chooses, and its host "*", for any.
    // Outlives Join. May be null.
    const Store* store = nullptr;
    // The network interfaces at whose addresses rank 0 listens, besides
    // loopback's, and whose addresses are used to reach it on another host.
    NameFilter interfaces;
    Deadline deadline = Deadline::Infinite();  // for Join
    // Why this rank cannot take part: Join only tells the others, for at most 3
    // s, and returns it.
    Status obstacle = Status::Ok();
    // How long another host may acknowledge nothing before its ranks are lost.
    std::chrono::milliseconds tcp_timeout{15'000};
    Logger logger;
    // Called once, from Bootstrap's thread, with the reason for which the job
    // failed (also a reason that came from this rank's own Abort). Must not
    // block or call back. Not called for an orderly end, nor for a failure
    // that Join returns.
    std::function<void(const Status&)> on_failure;
    // Called from Bootstrap's thread when another rank's process exits without
    // leaving in order, or leaves alone: why a call fails which that rank has
    // not ended, and how many it has. Must not block or call back.
    std::function<void(const Status& reason, uint64_t calls)> on_exit;
    // What this rank says to a rank that asks all (AskAll): at most 256 bytes,
    // not empty. Called from Bootstrap's thread; must not block or call back.
    std::function<std::string()> reply;
    // Join's own, where there is a store: whether it has made `secret`; and
    // where rank 0 listens, according to the store.
    bool has_made_secret = false;
    std::vector<std::string> stored_addresses;
  };

  // Returns when all ranks have joined. kTimeout lists the missing ranks and
  // the refused connections; kMismatch is an authenticated contradiction (size,
  // duplicate rank, version): both end every rank's Join, and the earliest
  // deadline of any rank counts for all. kInvalidArgument: a bad launch or
  // address, or TCP without a secret; kUnavailable: rank 0's address is in use;
  // kPeerLost: a rank died that had joined;
  // kResourceExhausted: no thread or descriptor. What the store's functions
  // return, if they fail.
  static Result<std::unique_ptr<Bootstrap>> Join(const Options& options);

  // Leaves in order: the other ranks learn that this one is done, and do not
  // take it for dead. A rank that fails later is no longer this one's concern.
  // Does not wait for the others to be done, but sends what they still have to
  // get; gives up 0.7 s after the last of them took any of it, as where one is
  // stopped. When rank 0 leaves, the star is closed: on the others failure()
  // stays ok, AllGather and Barrier fail, Abort stays local, and they no longer
  // learn of each other's death here.
  ~Bootstrap();

  // This process is about to exit, with this object as it is, and has ended so
  // many calls: the others do not take it for dead, and their on_exit is
  // called. Sends the rest as the destructor does. From now on AllGather and
  // Barrier fail.
  void Exit(uint64_t calls);
  // The same where the process goes on, and this object is to be destroyed.
  void LeaveAlone(uint64_t calls);

  int rank() const;
  int size() const;

  // 32 bytes that the ranks of this job have in common, and nobody else: made
  // from the secret, the job id, and what each rank drew for this join. Where
  // there is no secret they are as private as the unix socket.
  const std::string& job_key() const;

  // The address of this host by which it met the other hosts of the job:
  // "10.0.0.2", from which it reached rank 0, or at which others reached rank 0
  // on this host. "" if all met at loopback or a unix socket.
  const std::string& address() const;

  // Every rank's blob (at most 1 MiB each), by rank. kPeerLost if a rank that
  // is needed has left in order; the reason if the job has failed; kTimeout
  // (which fails the job) names the ranks that have not called; kMismatch
  // (likewise) if another rank calls Barrier here; kInvalidArgument for a
  // larger blob or a second call at a time.
  Result<std::vector<std::string>> AllGather(const std::string& blob,
                                             Deadline deadline);
  // Returns when all ranks have called it. Errors as AllGather's. Until the
  // first one, rank 0 goes on listening: a process that then claims a place
  // which is taken ends the job with kMismatch, since two jobs that were given
  // one address may have mixed.
  Status Barrier(Deadline deadline);

  // As Barrier, for ranks that are about to leave. Its timeout fails nothing:
  // this rank may leave then, alone. The same holds for kInterrupted,
  // if the caller's function has ended the wait.
  Status LeaveTogether(Deadline deadline);

  // What each rank says of itself (Options::reply), by rank; "" where a rank
  // has said nothing by the deadline. All are silent where rank 0 is, by way of
  // which they are asked. Returns early if the job fails. One call at a time on
  // each rank; a second one gets no answers.
  std::vector<std::string> AskAll(Deadline deadline);

  // Ends the job with `reason` unless it has failed before; returns the reason
  // that won as far as this rank knows. Does not wait for the other ranks, but
  // until the system has what they are told, for 0.1 s at most: the process may
  // end right after that.
  Status Abort(const Status& reason);

  // Ok, or the reason for which the job failed.
  Status failure() const;

  // Ranks that have left, in order or by Exit.
  std::vector<int> departed() const;

  // How many connections were refused since Join began (strangers, garbage).
  int refused_connections() const;

 private:
  Bootstrap();

  std::unique_ptr<Session> session_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_BOOTSTRAP_BOOTSTRAP_H_
