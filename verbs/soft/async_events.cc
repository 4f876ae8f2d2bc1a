#include "verbs/soft/async_events.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace ringpipe::verbs::soft {
namespace {

// nullptr for the port's and the device's, which belong to no object.
void* ObjectOf(const ibv_async_event& event) {
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR:
      return event.element.cq;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return event.element.srq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
      return event.element.qp;
    default:
      return nullptr;
  }
}

}  // namespace

bool AsyncEvents::Open() {
  event_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE));
  return static_cast<bool>(event_);
}

void AsyncEvents::RaiseForQueuePair(ibv_qp* qp, ibv_event_type type) {
  ibv_async_event event = {};
  event.element.qp = qp;
  event.event_type = type;
  Raise(event);
}

void AsyncEvents::RaiseForCompletionQueue(ibv_cq* cq) {
  ibv_async_event event = {};
  event.element.cq = cq;
  event.event_type = IBV_EVENT_CQ_ERR;
  Raise(event);
}

void AsyncEvents::RaiseForSharedReceiveQueue(ibv_srq* srq,
                                             ibv_event_type type) {
  ibv_async_event event = {};
  event.element.srq = srq;
  event.event_type = type;
  Raise(event);
}

void AsyncEvents::RaiseForPort(ibv_event_type type) {
  ibv_async_event event = {};
  event.element.port_num = 1;
  event.event_type = type;
  Raise(event);
}

void AsyncEvents::Raise(const ibv_async_event& event) {
  {
    std::lock_guard lock(mutex_);
    waiting_.push_back(event);
  }
  if (!event_.IsOpen()) {
    return;
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written =
      write(event_.get(), &one, sizeof one);
}

int AsyncEvents::Get(ibv_async_event* event) {
  while (true) {
    std::uint64_t count;
    if (!event_.IsOpen()) {
      errno = EBADF;
      return -1;
    }
    if (read(event_.get(), &count, sizeof count) != sizeof count) {
      return -1;
    }
    std::lock_guard lock(mutex_);
    if (!waiting_.empty()) {  // else it was dropped by Forget
      *event = waiting_.front();
      waiting_.pop_front();
      if (void* object = ObjectOf(*event)) {
        ++taken_[object];
      }
      return 0;
    }
  }
}

void AsyncEvents::Acknowledge(const ibv_async_event& event) {
  std::lock_guard lock(mutex_);
  const auto found = taken_.find(ObjectOf(event));
  if (found != taken_.end() && --found->second == 0) {
    taken_.erase(found);
    acknowledged_.notify_all();
  }
}

void AsyncEvents::Forget(void* object) {
  std::unique_lock lock(mutex_);
  const auto dropped =
      std::erase_if(waiting_, [object](const ibv_async_event& event) {
        return ObjectOf(event) == object;
      });
  pollfd readable = {event_.get(), POLLIN, 0};
  for (std::size_t i = 0;
       i < dropped && event_.IsOpen() && poll(&readable, 1, 0) == 1; ++i) {
    std::uint64_t count;
    [[maybe_unused]] const ssize_t got =
        read(event_.get(), &count, sizeof count);
  }
  acknowledged_.wait(lock, [&] { return !taken_.contains(object); });
}

}  // namespace ringpipe::verbs::soft
