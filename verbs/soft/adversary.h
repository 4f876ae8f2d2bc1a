#ifndef RINGPIPE_VERBS_SOFT_ADVERSARY_H_
#define RINGPIPE_VERBS_SOFT_ADVERSARY_H_

#include <cstdint>

#include "base/deadline.h"
#include "verbs/soft/random.h"
#include "verbs/soft/send_queue.h"

namespace ringpipe::verbs::soft {

// On whose account requests get on. The adversarial mode executes none because
// of a call other than a poll.
enum class Trigger { kCall, kPoll, kTimer };

// The adversarial mode of a queue pair: makes its requests execute late, after
// some polls or some time. Guarded by the queue pair's mutex.
class Adversary {
 public:
  // `seed` 0: the mode is off.
  Adversary(std::uint64_t seed, std::uint32_t qp_index)
      : random_(seed, qp_index) {}

  // A request was posted: decides when it may execute.
  void Delay(SendRequest* request);

  // Whether `request` may not execute yet; then `until` is when it may at the
  // latest.
  bool Holds(SendRequest& request, Trigger trigger, Clock::time_point* until);

 private:
  static constexpr std::uint32_t kMostPolls = 8;
  static constexpr std::uint32_t kMostMicroseconds = 1000;

  Random random_;
};

inline void Adversary::Delay(SendRequest* request) {
  if (random_.enabled()) {
    request->polls_to_wait = random_.Below(kMostPolls) + 1;
    request->due = Clock::now() + std::chrono::microseconds(
                                      random_.Below(kMostMicroseconds) + 1);
  }
}

inline bool Adversary::Holds(SendRequest& request, Trigger trigger,
                             Clock::time_point* until) {
  if (request.polls_to_wait == 0) {
    return false;
  }
  if (trigger == Trigger::kPoll) {
    --request.polls_to_wait;
  } else if (trigger == Trigger::kTimer && Clock::now() >= request.due) {
    request.polls_to_wait = 0;
  }
  *until = request.due;
  return request.polls_to_wait > 0;
}

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_ADVERSARY_H_
