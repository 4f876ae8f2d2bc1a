// A communicator's ranks as a Job.
#ifndef RINGPIPE_BENCH_COMMUNICATOR_JOB_H_
#define RINGPIPE_BENCH_COMMUNICATOR_JOB_H_

#include <string>
#include <vector>

#include "bench/benchmark.h"
#include "bench/job.h"
#include "bench/json_report.h"
#include "bench/options.h"
#include "engine/communicator.h"

namespace ringpipe {

// Lives no longer than its communicator. One thread.
class CommunicatorJob : public Job {
 public:
  // `blocking`: AllReduce; otherwise AllReduceAsync and Wait.
  CommunicatorJob(Communicator& communicator, bool blocking)
      : communicator_(communicator), blocking_(blocking) {}

  int rank() const override { return communicator_.rank(); }
  int size() const override { return communicator_.size(); }
  Status AllReduce(const void* send, void* receive, std::size_t count,
                   DataType type, ReduceOp op) override;
  Status Barrier() override { return communicator_.Barrier(); }
  Result<std::vector<std::string>> Exchange(const std::string& blob) override {
    return communicator_.Exchange(blob);
  }

  // Where every rank runs.
  Result<std::vector<RankPlace>> Places();

  // What bounds the run: the stage in which the ranks together spent most time,
  // as "receive (busy 12 %, waited for 43 % of the time in calls)". Counts from
  // `before`, over calls that took this rank `in_calls_us`.
  Result<std::string> BoundBy(const std::vector<StageCounters>& before,
                              double in_calls_us);

 private:
  Communicator& communicator_;
  const bool blocking_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_COMMUNICATOR_JOB_H_
