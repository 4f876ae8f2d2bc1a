// What the tests of the bootstrap share: ranks as threads of one process.
#ifndef RINGPIPE_BOOTSTRAP_TEST_JOB_H_
#define RINGPIPE_BOOTSTRAP_TEST_JOB_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "bootstrap/bootstrap.h"

namespace ringpipe {

// Longer than anything takes, shorter than the test may.
inline Deadline Soon() { return Deadline::After(std::chrono::seconds(20)); }

// For ranks that are there to do their part before a deadline that is to expire
// because of one that is not, also on a busy machine.
inline constexpr std::chrono::milliseconds kTimeToConnect(1000);

// A name for a root that is used once.
std::string UniqueName();

// Of rank `rank` of a job "job" at `root`, silent but for errors.
Bootstrap::Options MakeOptions(const std::string& root, int rank, int size);

// Of all ranks of a job at a root of its own.
std::vector<Bootstrap::Options> MakeJob(int size);

using Joined = Result<std::unique_ptr<Bootstrap>>;

// Joins with all ranks at once, each on a thread of its own.
std::vector<Joined> JoinAll(const std::vector<Bootstrap::Options>& all);

// Calls `f` for all ranks at once.
void OnAll(std::vector<Joined>* ranks,
           const std::function<void(Bootstrap*)>& f);

// Fails the running test unless `status` is of `code` and has all `words`.
void ExpectSays(const Status& status, StatusCode code,
                const std::vector<std::string>& words);

// What a rank's failure callback was told.
class FailureRecord {
 public:
  std::function<void(const Status&)> callback() {
    return [this](const Status& reason) {
      if (++calls_ == 1) {
        first_.set_value(reason);
      }
    };
  }
  // Within `limit`, or ok.
  Status Wait(std::chrono::milliseconds limit) {
    return future_.wait_for(limit) == std::future_status::ready ? future_.get()
                                                                : Status();
  }
  int calls() const { return calls_; }

 private:
  std::atomic<int> calls_{0};
  std::promise<Status> first_;
  std::shared_future<Status> future_ = first_.get_future().share();
};

}  // namespace ringpipe

#endif  // RINGPIPE_BOOTSTRAP_TEST_JOB_H_
