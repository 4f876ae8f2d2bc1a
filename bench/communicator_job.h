// A communicator's ranks as a Job.
#ifndef RINGPIPE_BENCH_COMMUNICATOR_JOB_H_
#define RINGPIPE_BENCH_COMMUNICATOR_JOB_H_

#include <fcntl.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/deadline.h"
#include "bench/benchmark.h"
#include "bench/bound_by.h"
#include "bench/job.h"
#include "bench/json_report.h"
#include "bench/options.h"
#include "engine/communicator.h"

namespace ringpipe {

// Lives no longer than its communicator. One thread, which made it.
class CommunicatorJob : public Job {
 public:
  // `blocking`: Communicator::Run; otherwise Start and Wait. `tensors`:
  // Options'.
  CommunicatorJob(Communicator& communicator, bool blocking,
                  const std::vector<std::size_t>& tensors = {})
      : communicator_(communicator),
        blocking_(blocking),
        tensors_(tensors),
        queue_fd_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}
  ~CommunicatorJob() override {
    if (queue_fd_ >= 0) {
      close(queue_fd_);
    }
  }
  CommunicatorJob(const CommunicatorJob&) = delete;
  CommunicatorJob& operator=(const CommunicatorJob&) = delete;

  int rank() const override { return communicator_.rank(); }
  int size() const override { return communicator_.size(); }
  Status Run(const Call& call) override;
  Status Barrier() override { return communicator_.Barrier(); }
  Result<std::vector<std::string>> Exchange(const std::string& blob) override {
    return communicator_.Exchange(blob);
  }

  // Where every rank runs.
  Result<std::vector<RankPlace>> Places();

  void BeforeTimedCalls() override;
  void AfterTimedCalls() override;

  // What every rank did in its timed calls so far, and in the barriers before
  // them, by rank. `places` are those of Places.
  Result<std::vector<RankLoad>> Loads(const std::vector<RankPlace>& places);

 private:
  // Since the process began.
  struct Counters {
    Clock::time_point at;
    std::vector<StageCounters> stages;
    double cpu_ns = 0;
    double queued_ns = 0;
  };
  Counters ReadCounters() const;
  Status RunAsItIs(const Call& call);
  // The buffer in pieces.
  std::vector<Buffer> InTensors(const void* buffer, DataType type) const;

  Communicator& communicator_;
  const bool blocking_;
  const std::vector<std::size_t> tensors_;
  // The calling thread's time in queues for a core; -1: not to be known. Where
  // calls do not block, another thread does the work, which is not in it.
  const int queue_fd_;
  Counters before_;
  RankLoad load_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_COMMUNICATOR_JOB_H_
