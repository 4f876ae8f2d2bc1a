// A caller's function that is called while its call waits.
#ifndef RINGPIPE_BASE_WHILE_WAITING_H_
#define RINGPIPE_BASE_WHILE_WAITING_H_

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>

#include "base/deadline.h"
#include "base/status.h"

namespace ringpipe {

// What a communicator's user wants to be called, and how often.
struct WhileWaiting {
  std::function<bool()> function;  // true: wait no longer. Empty: none
  std::chrono::microseconds interval{20'000};
};

// A call that may block, on the stack of the thread that made it. The places
// where that thread then sleeps find it by Current(), sleep no longer than
// until due(), and call Ends() with no lock held. That is why it belongs to a
// thread: what sleeps, down to the bootstrap, need not be told whose thread it
// is on, and a thread of ringpipe's own never calls a user's function.
class BlockingCall {
 public:
  // `hook` outlives it. Does nothing if `hook` has no function.
  explicit BlockingCall(const WhileWaiting& hook);
  ~BlockingCall();
  BlockingCall(const BlockingCall&) = delete;
  BlockingCall& operator=(const BlockingCall&) = delete;

  // Of this thread. nullptr: no function is to be called.
  static BlockingCall* Current();

  // When the function is to be called: an interval after this was asked first,
  // or after it was called last. Never, once it has ended the call.
  Clock::time_point due();
  // A signal handler has run on this thread: it is due now.
  void Hurry();
  // Calls the function if it is due. Whether it ends the call, now or before.
  bool Ends();

  // poll()'s timeout, no longer than until the function is due on this thread.
  static int PollTimeoutMs(int timeout_ms);
  // After poll(), which a signal has `interrupted`: calls the function of this
  // thread if it has one that is due. Whether it ends the call.
  static bool EndsAfterPoll(bool interrupted);

 private:
  const WhileWaiting& hook_;
  BlockingCall* const outer_;
  Clock::time_point due_ = {};  // {}: not asked yet
  bool ended_ = false;
};

// kAborted: "rank 3's function while_waiting has ended WHAT".
Status EndedByCaller(int rank, const std::string& what);

// How a wait came to its end.
enum class Waited {
  kDone,     // what was waited for is there
  kExpired,  // by the deadline
  kEnded,    // by the function of this thread's BlockingCall
};

// Waits on `changed` until `done`, under `lock`. Lets go of it to call the
// function of this thread's BlockingCall.
template <typename Done>
Waited WaitUntil(std::condition_variable& changed,
                 std::unique_lock<std::mutex>& lock, const Deadline& deadline,
                 const Done& done) {
  // What is done costs no look at the clock.
  while (!done()) {
    BlockingCall* const call = BlockingCall::Current();
    const Clock::time_point until =
        call == nullptr ? deadline.when()
                        : std::min(deadline.when(), call->due());
    if (until == Clock::time_point::max()) {
      changed.wait(lock, done);
    } else if (!changed.wait_until(lock, until, done)) {
      if (call == nullptr || deadline.expired()) {
        return Waited::kExpired;
      }
      lock.unlock();
      const bool ends = call->Ends();
      lock.lock();
      if (ends && !done()) {
        return Waited::kEnded;
      }
    }
  }
  return Waited::kDone;
}

// While a user's function runs on this thread.
class UsersFunction {
 public:
  // `name`, for messages, lives as long as the process.
  explicit UsersFunction(const char* name);
  ~UsersFunction();
  UsersFunction(const UsersFunction&) = delete;
  UsersFunction& operator=(const UsersFunction&) = delete;

  // For each call that may block: kInvalidArgument if it is made in a user's
  // function, where it could wait for the call that waits for that function.
  static Status MayBlock(const char* call);

 private:
  const char* const outer_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_WHILE_WAITING_H_
