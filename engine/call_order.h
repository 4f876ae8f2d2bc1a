#ifndef RINGPIPE_ENGINE_CALL_ORDER_H_
#define RINGPIPE_ENGINE_CALL_ORDER_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "base/status.h"

namespace ringpipe {

// Runs calls one at a time, in the order in which they were made: a blocking
// one on its caller's thread, an asynchronous one on a thread that is started
// at the first of them. Thread-safe.
class CallOrder {
 public:
  // Runs a call given its number, from 0.
  using Run = std::function<Status(std::uint64_t sequence)>;
  // Is told how a call has ended; must not make another one.
  using End = std::function<void(const Status&)>;

  CallOrder() = default;
  // Runs what was submitted to its end (it ends soon where the communicator has
  // been aborted).
  ~CallOrder();
  CallOrder(const CallOrder&) = delete;
  CallOrder& operator=(const CallOrder&) = delete;

  Status RunNow(const Run& run);

  // kResourceExhausted where no thread can be started; nothing is queued then.
  Status RunLater(Run run, End end);

  // Whether a call has been made that has not ended.
  bool pending() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return turn_ != next_sequence_;
  }

 private:
  struct Queued {
    std::uint64_t sequence;
    Run run;
    End end;
  };

  void WaitForTurn(std::unique_lock<std::mutex>& lock, std::uint64_t sequence);
  void EndTurn();
  void Work();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::uint64_t next_sequence_ = 0;
  std::uint64_t turn_ = 0;  // of the call that runs, or runs next
  std::deque<Queued> queue_;
  bool stopping_ = false;

  std::thread worker_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_CALL_ORDER_H_
