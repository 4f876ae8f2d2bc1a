#ifndef RINGPIPE_ENGINE_GOODBYE_H_
#define RINGPIPE_ENGINE_GOODBYE_H_

#include <cstdint>
#include <string>

#include "base/deadline.h"
#include "base/log.h"
#include "bootstrap/bootstrap.h"
#include "pipeline/abort_signal.h"
#include "pipeline/executor.h"
#include "pipeline/whereabouts.h"

namespace ringpipe {

// How a rank leaves its job without an error: when the others leave too, or
// alone. Once the executor's calls have ended, or with the process. What is
// pointed to outlives it.
class Goodbye {
 public:
  struct Job {
    int rank = 0;
    int size = 1;
    const Logger* logger = nullptr;
    AbortSignal* abort = nullptr;
    WhereaboutsRecord* whereabouts = nullptr;
    Bootstrap* bootstrap = nullptr;
    Executor* executor = nullptr;
  };

  explicit Goodbye(const Job& job) : job_(job) {}

  // Waits until the other ranks are here too, until `deadline` and for two
  // seconds at most, and not after a failure; then tells those that are not.
  // Returns whether all came.
  bool LeaveTogether(Deadline deadline) noexcept;

  // The process exits: tells the others, and waits for none of them. `idle`: no
  // call runs, nor will.
  void Exit(bool idle);

 private:
  // That this rank waits for no other: their calls that it has not ended fail.
  // `lives_on`: its process does.
  void Tell(bool lives_on);
  // Of the others, those that do not leave, as far as they say.
  std::string RanksThatStay();

  const Job job_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_GOODBYE_H_
