// Starts the ranks of a job on this host: what --ranks does.
#ifndef RINGPIPE_BENCH_LOCAL_RANKS_H_
#define RINGPIPE_BENCH_LOCAL_RANKS_H_

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace ringpipe {

// How a job ended.
struct JobEnd {
  // 0, or the largest of the ranks', where one that was killed by signal S
  // counts as 128 + S.
  int exit_status = 0;
  // The signal that ended the job, where one did that was meant for all of it:
  // to this process, or to a rank that said so (ReportStop) or that died of
  // SIGINT. This process is to die of it too.
  std::optional<int> stopped_by;
};

// kInvalidArgument where this process is itself a rank of a job.
Status CheckIsNoRank();

// Runs `arguments` (a program's path and its arguments) once for each of
// `ranks` ranks, with RINGPIPE_RANK, RINGPIPE_SIZE, RINGPIPE_ROOT and
// RINGPIPE_JOB_ID set and "--error-fd=N" appended, to the end of all of them.
//
// The ranks share this process's group, session, standard output and error. (No
// setsid: where the kernel groups processes by session for scheduling,
// sched_yield does nothing between ranks in different ones.) They die with this
// process. SIGINT, SIGTERM and SIGHUP (unless they are ignored) are passed on
// to all of them, which have 12 s to save what they have before they are
// killed; a second signal to this process kills them at once. When a rank
// fails, the others have 1.4 s to end by themselves before they are ended.
//
// Errors that ranks report through ReportError are printed to stderr, each
// once, however many ranks report it.
//
// kUnavailable where /proc is not mounted.
//
// Exit statuses up to `results` are what a rank has found, not failures:
// nothing is said about them, and the other ranks go on.
//
// Call it in a process with one thread, no child processes and the default
// actions for signals.
Result<JobEnd> RunLocalRanks(int ranks,
                             const std::vector<std::string>& arguments,
                             int results = 0);

// The program that runs, to be started again: its own name where it still has
// one, else a name in `proc`. kUnavailable where that is not mounted.
Result<std::string> OwnProgram(const std::string& proc = "/proc");

// How a program whose whole work was that job ends: dies of the signal that
// ended the job, so that a shell that runs it in a loop sees this, or returns
// the exit status.
int EndAs(const JobEnd& end);

// Tells the user that this rank failed. With `error_fd` >= 0 (a rank of
// RunLocalRanks), through the launcher; otherwise on stderr. rank < 0: not
// known.
void ReportError(int error_fd, int rank, const Status& status);

// Tells the launcher, where there is one (`error_fd` >= 0), that this rank is
// about to die of `signal`, which is meant for the whole job: the other ranks
// are to be ended, and what they say about it is not worth printing.
void ReportStop(int error_fd, int signal);

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_LOCAL_RANKS_H_
