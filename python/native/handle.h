#ifndef RINGPIPE_PYTHON_NATIVE_HANDLE_H_
#define RINGPIPE_PYTHON_NATIVE_HANDLE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "python/native/call.h"
#include "python/native/log_lines.h"
#include "python/native/python.h"
// After Python.h.
#include "engine/ringpipe.h"

namespace ringpipe::python {

class Handle;

// Whether this thread runs Python inside a call of ringpipe's: there,
// ringpipe_destroy does nothing.
extern constinit thread_local bool may_not_destroy;
// Whether WhileWaiting has left an exception set on this thread, and nobody has
// looked since.
extern constinit thread_local bool has_raised
    __attribute__((tls_model("initial-exec")));

// An asynchronous call, with the memory that it reads and writes. The handle
// has it until the call has ended, whatever Python has dropped by then.
struct PendingCall {
  CallArguments arguments;
  Handle* handle;
  ringpipe_request* request;
  // What Ended and Python say to each other, in this order: the call has ended;
  // a descriptor was there to be told; Ended touches this no more.
  std::atomic<bool> has_ended;  // `status` is set
  std::atomic<int> event_fd;    // -1: nobody looks at it
  std::atomic<bool> is_done;
  ringpipe_status status;
  // The rest is read and written with the GIL.
  bool has_memory;    // the arguments hold it
  bool is_releasing;  // they give it back: somebody's code may run
  bool has_owner;     // a Request object
  bool is_linked;     // in the handle's list
  PendingCall* next;
  PendingCall* previous;

  // ringpipe_call::ended; on a thread of ringpipe's.
  static void Ended(ringpipe_status status, void* call);
  // A descriptor that can be read once the call has ended; -1 with an
  // exception.
  int EventDescriptor();
  // The call has ended so. Gives its memory back, if it may be used again. That
  // may run any code: whoever has the call must still have it afterwards.
  void ReleaseMemory(ringpipe_status status);
};

// A communicator, from its creation until nothing needs it any more: the
// Communicator object, its requests, and the arrays in its memory.
//
// Everything is done with the GIL, but what a blocking call waits for; `Inside`
// and `Leave` count the threads that are there.
class Handle {
 public:
  // None until Create has succeeded. nullptr, with an exception, if there is no
  // memory. Has one reference.
  static Handle* New();
  void Refer() { ++references_; }
  // The last one destroys the communicator.
  void Drop();

  // Joins the other ranks; sets the exception if that fails. `options` says all
  // but the functions, which are the handle's.
  bool Create(ringpipe_options options);
  // True if Create has succeeded, and a call may be made; otherwise sets the
  // exception, which says what to do.
  bool IsOpen();
  // Ends all calls, of other threads too, and leaves the other ranks. What
  // arrays are in stays until the last of them is gone. Sets an exception if a
  // signal handler raised one.
  void Close(bool may_raise);
  bool is_closed() const { return is_closing_.load(std::memory_order_relaxed); }
  void Abort(const char* reason);

  // Runs the call. False, with an exception, if it fails.
  bool Run(CallArguments& arguments);
  // Starts a call whose arguments have been read. False with an exception.
  bool Start(PendingCall& call);
  // Waits for it. RINGPIPE_OK, or sets the exception.
  ringpipe_status Wait(PendingCall& call, std::int64_t timeout_ms);
  // Of a call that no Request has any more.
  void Disown(PendingCall& call);

  void* Allocate(std::size_t bytes);
  void Free(void* memory);

  // RINGPIPE_OK, or why the communicator has failed, as the exception.
  ringpipe_status Failure();

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Gives back what calls that have ended hold, and delivers the log. False
  // with an exception, if a signal handler raised one in logging, or while the
  // call waited.
  bool TidyUp() {
    return (done_ == 0 && log_.is_empty() && !has_raised) || TidyUpAll();
  }

 private:
  bool TidyUpAll();
  static int WhileWaiting(void* handle);
  void Leave();
  void Destroy();
  void Reap();
  void Unlink(PendingCall& call);
  void UncountMemory();
  static void Delete(PendingCall& call);
  void Fail(ringpipe_status status);
  PyObject* LostRanks();
  bool IsChild() const;

  ringpipe_communicator* communicator_;
  int rank_;
  int size_;
  unsigned fork_generation_;
  std::size_t references_;
  std::size_t memories_;  // Memory objects, and those that are being made
  bool has_closed_;  // Close ends it, or has: no call may be made but to free
  bool was_interrupted_;
  bool has_failed_;
  PendingCall* pending_;
  std::atomic<int> inside_;  // threads in a call
  std::atomic<bool> is_closing_;
  std::atomic<int> done_;  // pending calls that may be reaped
  LogLines log_;

  friend struct PendingCall;
};

// Sees forks from now on. Once.
void WatchForks();

}  // namespace ringpipe::python

#endif  // RINGPIPE_PYTHON_NATIVE_HANDLE_H_
