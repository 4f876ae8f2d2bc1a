// The ranks of a job, as the measurement sees them.
#ifndef RINGPIPE_BENCH_JOB_H_
#define RINGPIPE_BENCH_JOB_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "engine/call.h"

namespace ringpipe {

// What is measured: a communicator, or in tests something that is known to
// reduce wrongly. Every rank makes the same calls in the same order. One
// thread.
class Job {
 public:
  virtual ~Job() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // The call whose time is taken; returns when the result is there.
  virtual Status Run(const Call& call) = 0;
  virtual Status Barrier() = 0;
  // Around the timed calls of a series and the barriers before each of them:
  // for counters. (What is done between two calls would show in their times:
  // where ranks share a core, it delays the rank that is still in its call.)
  virtual void BeforeTimedCalls() {}
  virtual void AfterTimedCalls() {}
  // Every rank's blob by rank; at most 1 MiB each.
  virtual Result<std::vector<std::string>> Exchange(
      const std::string& blob) = 0;
};

// Ok where `mine` is ok on every rank; else, on every rank, that of the lowest
// rank where it is not, with the rank named. One call of Exchange.
Status Agree(Job& job, const Status& mine);

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_JOB_H_
