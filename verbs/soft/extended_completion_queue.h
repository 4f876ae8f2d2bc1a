#ifndef RINGPIPE_VERBS_SOFT_EXTENDED_COMPLETION_QUEUE_H_
#define RINGPIPE_VERBS_SOFT_EXTENDED_COMPLETION_QUEUE_H_

#include <infiniband/verbs.h>

#include <mutex>

namespace ringpipe::verbs::soft {

class CompletionQueue;

// The functions behind the pointers of an ibv_cq_ex: completions are taken one
// at a time and read member by member.
//
// Thread-safe as the interface is: from ibv_start_poll that returns 0 to
// ibv_end_poll the queue belongs to the thread, unless it was created for a
// single one.
class ExtendedCompletionQueue {
 public:
  // Sets the pointers of `cq`, which keeps the result.
  ExtendedCompletionQueue(CompletionQueue* cq, bool single_threaded);
  ExtendedCompletionQueue(const ExtendedCompletionQueue&) = delete;
  ExtendedCompletionQueue& operator=(const ExtendedCompletionQueue&) = delete;

  // As ibv_start_poll, ibv_next_poll and ibv_end_poll.
  int StartPoll(const ibv_poll_cq_attr& attr);
  int NextPoll();
  void EndPoll();

  // The completion that was taken last.
  const ibv_wc& current() const { return current_; }

 private:
  void SetPointers();

  CompletionQueue* const cq_;
  const bool single_threaded_;
  std::mutex mutex_;  // held from StartPoll to EndPoll
  ibv_wc current_ = {};
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_EXTENDED_COMPLETION_QUEUE_H_
