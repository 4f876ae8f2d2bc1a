#include "python/native/handle.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdlib>
#include <new>
#include <utility>

#include "python/native/hooks.h"

namespace ringpipe::python {

constinit thread_local PyThreadState* waiting_thread = nullptr;
constinit thread_local bool may_not_destroy = false;
constinit thread_local bool has_raised = false;

namespace {

// How many forks lie between this process and the one that loaded the module.
unsigned fork_generation = 0;

// Whether a call that fails so leaves the communicator as it was.
bool IsHarmless(ringpipe_status status) {
  return status == RINGPIPE_OK || status == RINGPIPE_INVALID_ARGUMENT ||
         status == RINGPIPE_WAIT_OVER || status == RINGPIPE_INTERRUPTED;
}

// What WithoutGil does, where no signal handler may run: nobody could be given
// what it raises.
template <typename Function>
void Quietly(Function function) {
  PyThreadState* const outer = waiting_thread;
  waiting_thread = nullptr;
  PyThreadState* const state = PyEval_SaveThread();
  function();
  PyEval_RestoreThread(state);
  waiting_thread = outer;
}

}  // namespace

void WatchForks() {
  pthread_atfork(nullptr, nullptr, [] { ++fork_generation; });
}

void PendingCall::Ended(ringpipe_status status, void* pending) {
  auto* const call = static_cast<PendingCall*>(pending);
  Handle* const handle = call->handle;
  call->status = status;
  call->has_ended = true;
  if (const int fd = call->event_fd; fd >= 0) {
    eventfd_write(fd, 1);
  }
  call->is_done = true;  // Python may free it from here on
  ++handle->done_;
}

int PendingCall::EventDescriptor() {
  if (event_fd < 0) {
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) {
      PyErr_SetFromErrno(PyExc_OSError);
      return -1;
    }
    event_fd = fd;
    // Either Ended sees the descriptor, or this sees the end.
    if (has_ended) {
      eventfd_write(fd, 1);
    }
  }
  return event_fd;
}

void PendingCall::ReleaseMemory(ringpipe_status status) {
  // First: another thread, or the code that this runs, may come here too.
  if (std::exchange(has_memory, false) && status != RINGPIPE_MEMORY_HELD) {
    is_releasing = true;
    arguments.Release();
    is_releasing = false;
  }
}

Handle* Handle::New() {
  void* const memory = PyMem_Calloc(1, sizeof(Handle));
  if (memory == nullptr) {
    PyErr_NoMemory();
    return nullptr;
  }
  auto* const handle = new (memory) Handle();
  handle->references_ = 1;
  handle->fork_generation_ = fork_generation;
  return handle;
}

void Handle::Drop() {
  // Where ringpipe_destroy does nothing, the communicator is left as it is, for
  // good, and it refers to this.
  if (--references_ > 0 || may_not_destroy) {
    return;
  }
  ExceptionAside aside;
  Destroy();
  if (!IsChild()) {
    while (!log_.is_empty()) {
      log_.Deliver();
      if (PyErr_Occurred() != nullptr) {
        PyErr_WriteUnraisable(nullptr);
      }
    }
    this->~Handle();
    PyMem_Free(this);
  }
  aside.Restore();
}

bool Handle::IsChild() const { return fork_generation_ != fork_generation; }

int Handle::WhileWaiting(void* handle) {
  // Python runs signal handlers on its main thread alone. Another one that took
  // the GIL here would gain nothing, and could be ended by Python inside the
  // library.
  PyThreadState* const state = waiting_thread;
  if (state == nullptr || gettid() != getpid()) {
    return 0;
  }
  PyEval_RestoreThread(state);
  const bool outer = std::exchange(may_not_destroy, true);
  bool stops = PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0;
  if (!stops) {
    static_cast<Handle*>(handle)->log_.Deliver();
    stops = PyErr_Occurred() != nullptr;
  }
  may_not_destroy = outer;
  has_raised = has_raised || stops;
  waiting_thread = PyEval_SaveThread();
  return stops ? 1 : 0;
}

bool Handle::Create(ringpipe_options options) {
  options.log = &LogLines::Add;
  options.log_context = &log_;
  options.while_waiting = &WhileWaiting;
  options.while_waiting_context = this;
  const ringpipe_status status =
      WithoutGil([&] { return ringpipe_create(&options, &communicator_); });
  if (status != RINGPIPE_OK) {
    Fail(status);
    return false;
  }
  rank_ = ringpipe_rank(communicator_);
  size_ = ringpipe_size(communicator_);
  return TidyUp();
}

bool Handle::IsOpen() {
  if (IsChild()) {
    SetInvalid(
        "this communicator belongs to the process that made it, and this "
        "process is a child of it; make one here: ringpipe.Communicator(...)");
    return false;
  }
  if (is_closing_ || communicator_ == nullptr) {
    SetInvalid(
        "the communicator is closed; make a new one, on every rank: "
        "ringpipe.Communicator(...)");
    return false;
  }
  return true;
}

// After each call that may block, without the GIL.
void Handle::Leave() {
  if (--inside_ == 0 && is_closing_) {
    inside_.notify_all();
  }
}

void Handle::Close(bool may_raise) {
  if (may_not_destroy) {
    // It might wait for the call that waits for it.
    if (may_raise) {
      SetInvalid(
          "close() is called in a signal handler while a call waits, or in a "
          "store's put or get; raise an exception there instead, which ends "
          "the call");
    }
    return;
  }
  if (communicator_ == nullptr || IsChild() || is_closing_.exchange(true)) {
    return;
  }
  const auto wait_for_others = [this] {
    if (inside_ > 0) {
      ringpipe_abort(communicator_,
                     "it was closed while a thread was in a call of it");
    }
    for (int inside; (inside = inside_) > 0;) {
      inside_.wait(inside);
    }
  };
  Quietly(wait_for_others);
  has_closed_ = true;
  if (memories_ > 0) {
    ++memories_;  // another thread may free the last one meanwhile
    const auto leave = [this] { return ringpipe_leave(communicator_); };
    may_raise ? static_cast<void>(WithoutGil(leave)) : Quietly(leave);
    UncountMemory();
  } else if (may_raise) {
    ringpipe_communicator* const ended = communicator_;
    communicator_ = nullptr;
    WithoutGil([ended] {
      ringpipe_destroy(ended);
      return 0;
    });
  } else {
    Destroy();
  }
  ExceptionAside aside;
  TidyUp();
  aside.Restore();
}

void Handle::Destroy() {
  ringpipe_communicator* const ended = communicator_;
  communicator_ = nullptr;
  if (ended != nullptr && !IsChild()) {
    Quietly([ended] { ringpipe_destroy(ended); });
    Reap();
  }
}

void Handle::Abort(const char* reason) {
  if (communicator_ != nullptr && !has_closed_ && !IsChild()) {
    ++inside_;
    Quietly([this, reason] {
      ringpipe_abort(communicator_, reason);
      Leave();
    });
  }
}

bool Handle::Run(CallArguments& arguments) {
  if (!IsOpen()) {
    arguments.Release();
    return false;
  }
  ++inside_;
  const ringpipe_status status = WithoutGil([&] {
    const ringpipe_status ended =
        ringpipe_run(communicator_, &arguments.call());
    Leave();
    return ended;
  });
  if (status != RINGPIPE_OK) {
    Fail(status);
  }
  if (status != RINGPIPE_MEMORY_HELD) {
    arguments.Release();
  }
  return status == RINGPIPE_OK && TidyUp();
}

bool Handle::Start(PendingCall& call) {
  if (!IsOpen()) {
    call.arguments.Release();
    return false;
  }
  call.handle = this;
  call.event_fd = -1;
  call.has_memory = true;
  call.has_owner = true;
  call.is_linked = true;
  call.next = pending_;
  if (pending_ != nullptr) {
    pending_->previous = &call;
  }
  pending_ = &call;
  call.arguments.call().ended = &PendingCall::Ended;
  call.arguments.call().ended_context = &call;
  ++inside_;
  const ringpipe_status status = WithoutGil([&] {
    const ringpipe_status started =
        ringpipe_start(communicator_, &call.arguments.call(), &call.request);
    Leave();
    return started;
  });
  if (status != RINGPIPE_OK) {
    Unlink(call);
    Fail(status);
    call.ReleaseMemory(status);
    return false;
  }
  return TidyUp();
}

ringpipe_status Handle::Wait(PendingCall& call, std::int64_t timeout_ms) {
  if (IsChild()) {
    IsOpen();
    return RINGPIPE_INVALID_ARGUMENT;
  }
  ++inside_;
  const ringpipe_status status = WithoutGil([&] {
    const ringpipe_status ended = ringpipe_wait(call.request, timeout_ms);
    Leave();
    return ended;
  });
  if (status != RINGPIPE_OK) {
    Fail(status);
  }
  if (!IsHarmless(status) || status == RINGPIPE_OK) {
    call.ReleaseMemory(status);
  }
  if (status != RINGPIPE_OK) {
    return status;
  }
  return TidyUp() ? RINGPIPE_OK : RINGPIPE_INTERRUPTED;
}

void Handle::Unlink(PendingCall& call) {
  if (call.previous != nullptr) {
    call.previous->next = call.next;
  } else if (pending_ == &call) {
    pending_ = call.next;
  }
  if (call.next != nullptr) {
    call.next->previous = call.previous;
  }
  call.next = nullptr;
  call.previous = nullptr;
  call.is_linked = false;
}

void Handle::Disown(PendingCall& call) {
  call.has_owner = false;
  if (!call.is_linked && !call.is_releasing) {
    Delete(call);
  }
  Reap();
}

// Of a call that has ended, or has never begun.
void Handle::Delete(PendingCall& call) {
  ringpipe_request_free(call.request);
  if (call.event_fd >= 0) {
    close(call.event_fd);
  }
  PyMem_Free(&call);
}

void Handle::Reap() {
  if (done_ == 0 || IsChild()) {
    return;
  }
  for (PendingCall* call = pending_; call != nullptr;) {
    if (!call->is_done) {
      call = call->next;
      continue;
    }
    Unlink(*call);
    --done_;
    call->ReleaseMemory(call->status);
    // Disown leaves a call that is being released to whoever does that.
    if (!call->has_owner && !call->is_releasing) {
      Delete(*call);
    }
    call = pending_;  // the list may be another by now
  }
}

bool Handle::TidyUpAll() {
  has_raised = false;
  ExceptionAside aside;
  Reap();
  log_.Deliver();
  aside.Restore();
  return PyErr_Occurred() == nullptr;
}

void* Handle::Allocate(std::size_t bytes) {
  if (!IsOpen()) {
    return nullptr;
  }
  void* memory = nullptr;
  ++memories_;  // or another thread's close() could destroy what is allocated
  ++inside_;
  const ringpipe_status status = WithoutGil([&] {
    const ringpipe_status allocated =
        ringpipe_allocate(communicator_, bytes, &memory);
    Leave();
    return allocated;
  });
  if (status != RINGPIPE_OK) {
    SetError(status, ErrorMessage());
    ExceptionAside aside;
    UncountMemory();
    aside.Restore();
    return nullptr;
  }
  ++references_;
  if (!TidyUp()) {
    Free(memory);
    return nullptr;
  }
  return memory;
}

// The last one destroys a communicator that has been closed.
void Handle::UncountMemory() {
  if (--memories_ == 0 && has_closed_ && !may_not_destroy) {
    Destroy();
  }
}

void Handle::Free(void* memory) {
  if (!IsChild()) {
    ExceptionAside aside;
    Quietly([&] { ringpipe_free(communicator_, memory); });
    UncountMemory();
    aside.Restore();
  }
  Drop();
}

ringpipe_status Handle::Failure() {
  if (!IsOpen()) {
    return RINGPIPE_INVALID_ARGUMENT;
  }
  const ringpipe_status status = ringpipe_failure(communicator_);
  if (status != RINGPIPE_OK) {
    Fail(status);
    return status;
  }
  return TidyUp() ? RINGPIPE_OK : RINGPIPE_INTERRUPTED;
}

// Sets the exception of a call that has ended so, unless a signal handler has
// raised one.
void Handle::Fail(ringpipe_status status) {
  ExceptionAside aside;
  PyObject* const message = ErrorMessage();
  PyObject* const ranks = status == RINGPIPE_PEER_LOST ? LostRanks() : nullptr;
  const int before = was_interrupted_ ? 2 : has_failed_ ? 1 : 0;
  SetError(status, message, ranks, IsHarmless(status) ? 0 : before);
  ExceptionAside error;
  if (TidyUp() || aside.is_set()) {
    error.Restore();
  } else {  // a signal handler has raised something in logging
    error.Drop();
  }
  has_failed_ = has_failed_ || !IsHarmless(status);
  was_interrupted_ =
      was_interrupted_ || (aside.is_set() && !IsHarmless(status));
  aside.Restore();
}

// A tuple; nullptr if there is none.
PyObject* Handle::LostRanks() {
  std::int32_t few[16];
  std::size_t count = 0;
  if (communicator_ == nullptr || has_closed_ ||
      ringpipe_lost_ranks(communicator_, few, 16, &count) != RINGPIPE_OK) {
    return nullptr;
  }
  std::int32_t* ranks = few;
  const std::size_t room = count;
  if (room > 16) {
    ranks = static_cast<std::int32_t*>(PyMem_Malloc(room * sizeof *ranks));
    if (ranks == nullptr || ringpipe_lost_ranks(communicator_, ranks, room,
                                                &count) != RINGPIPE_OK) {
      PyMem_Free(ranks);
      return nullptr;
    }
  }
  PyObject* const tuple = PyTuple_New(static_cast<Py_ssize_t>(room));
  for (std::size_t i = 0; tuple != nullptr && i < room; ++i) {
    PyTuple_SetItem(tuple, static_cast<Py_ssize_t>(i),
                    PyLong_FromLong(ranks[i]));
  }
  if (ranks != few) {
    PyMem_Free(ranks);
  }
  return tuple;
}

}  // namespace ringpipe::python
