#ifndef RINGPIPE_VERBS_SOFT_ASYNC_EVENTS_H_
#define RINGPIPE_VERBS_SOFT_ASYNC_EVENTS_H_

#include <infiniband/verbs.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

#include "base/file_descriptor.h"

namespace ringpipe::verbs::soft {

// The asynchronous events of a context. Thread-safe.
class AsyncEvents {
 public:
  // False, with errno, where there is no descriptor left.
  bool Open();
  int fd() const { return event_.get(); }

  void RaiseForQueuePair(ibv_qp* qp, ibv_event_type type);
  void RaiseForCompletionQueue(ibv_cq* cq);
  void RaiseForSharedReceiveQueue(ibv_srq* srq, ibv_event_type type);
  void RaiseForPort(ibv_event_type type);

  // As ibv_get_async_event and ibv_ack_async_event.
  int Get(ibv_async_event* event);
  void Acknowledge(const ibv_async_event& event);

  // Before `object` (a queue pair or completion queue) goes: drops its events
  // that nobody has taken, and waits until those taken are acknowledged.
  void Forget(void* object);

 private:
  void Raise(const ibv_async_event& event);

  FileDescriptor event_;  // counts the events, roughly: see Get
  std::mutex mutex_;
  std::condition_variable acknowledged_;
  std::deque<ibv_async_event> waiting_;
  std::map<void*, int> taken_;  // not acknowledged yet
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_ASYNC_EVENTS_H_
