#ifndef RINGPIPE_ENGINE_CALL_ORDER_H_
#define RINGPIPE_ENGINE_CALL_ORDER_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"

namespace ringpipe {

// Runs calls one at a time, in the order in which they were made: a blocking
// one on its caller's thread, an asynchronous one on a thread that is started
// at the first of them. Thread-safe.
//
// A call that waits for its turn has a deadline too, and nobody to look at it
// but the call that runs: earliest_deadline is for that one.
class CallOrder {
 public:
  // Runs a call given its number, from 0.
  using Run = std::function<Status(std::uint64_t sequence)>;
  // Is told how a call has ended. As `end`, under the lock: it must not make
  // another one. As `after`, with no lock held, on the thread that has run the
  // call, before it runs the next one.
  using End = std::function<void(const Status&)>;

  // A call from its first look at the communicator to its last: on the caller's
  // stack.
  class Caller {
   public:
    explicit Caller(CallOrder& order) : order_(order) { ++order_.callers_; }
    ~Caller() { --order_.callers_; }
    Caller(const Caller&) = delete;
    Caller& operator=(const Caller&) = delete;

   private:
    CallOrder& order_;
  };

  // `end_calls` ends the calls that have been made, soon: it is called on a
  // thread that waits for its turn and whose function has asked for the end
  // (base/while_waiting.h). May be empty if no thread has such a function.
  explicit CallOrder(std::function<void()> end_calls = {})
      : end_calls_(std::move(end_calls)) {}
  // Runs what was submitted to its end (it ends soon where the communicator has
  // been aborted), and waits until all callers have left.
  ~CallOrder();
  CallOrder(const CallOrder&) = delete;
  CallOrder& operator=(const CallOrder&) = delete;

  // Both: kAborted after Close. What `run` throws ends its turn, and is passed
  // on by RunNow; RunLater has it end the call with kResourceExhausted. RunNow,
  // whose `run` is as Run, allocates nothing but room for more pending calls
  // than ever before.
  //
  // A call may take several `numbers`, of which `run` gets the first.
  template <typename F>
  Status RunNow(Deadline deadline, const F& run, int numbers = 1) {
    const std::optional<std::uint64_t> sequence = BeginTurn(deadline, numbers);
    if (!sequence) {
      return Closed();
    }
    const Turn turn(*this, numbers);
    return run(*sequence);
  }

  // kResourceExhausted where no thread can be started; nothing is queued then.
  // Otherwise `end` and `after`, which may be empty, are called once each.
  Status RunLater(Deadline deadline, Run run, End end, End after = {},
                  int numbers = 1);

  // Runs `run` and nothing beside it, where no call has been made that has not
  // ended; returns whether.
  bool RunIfIdle(const std::function<void()>& run);

  // Of the calls that have been made and have not ended.
  const std::atomic<Clock::time_point>& earliest_deadline() const {
    return earliest_deadline_;
  }

  // Whether a call has been made that has not ended.
  bool pending() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return callers_ > 0 || turn_ != next_sequence_;
  }

  bool closed() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return closed_;
  }

  // What a call that is made after Close gets.
  static Status Closed();

  // From now on no call begins.
  void Close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
  }

 private:
  struct Queued {
    std::uint64_t sequence;
    int numbers;
    Run run;
    End end;
    End after;
  };

  struct Expiry {
    std::uint64_t sequence;
    Clock::time_point when;
  };

  // The turn of the call that runs: it ends with this.
  class Turn {
   public:
    Turn(CallOrder& order, int numbers) : order_(order), numbers_(numbers) {}
    ~Turn() { order_.LockAndEndTurn(numbers_); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    CallOrder& order_;
    const int numbers_;
  };

  // Waits for the turn of a new call; none after Close.
  std::optional<std::uint64_t> BeginTurn(Deadline deadline, int numbers);
  void LockAndEndTurn(int numbers);
  std::uint64_t AddCall(Deadline deadline, int numbers);
  static Status RunQueued(const Queued& call);
  void WaitForTurn(std::unique_lock<std::mutex>& lock, std::uint64_t sequence);
  void EndTurn(int numbers);
  void TellEarliestDeadline();
  Status StartWorker();
  void Work();

  const std::function<void()> end_calls_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::uint64_t next_sequence_ = 0;
  std::uint64_t turn_ = 0;  // of the call that runs, or runs next
  std::deque<Queued> queue_;
  bool closed_ = false;
  bool stopping_ = false;
  // The minima of a sliding window: calls after which none expires earlier, so
  // that the first one's deadline is the earliest of all.
  std::vector<Expiry> expiries_;
  std::size_t first_expiry_ = 0;  // those before have ended

  std::atomic<int> callers_ = 0;
  std::atomic<Clock::time_point> earliest_deadline_ = Clock::time_point::max();
  std::thread worker_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_CALL_ORDER_H_
