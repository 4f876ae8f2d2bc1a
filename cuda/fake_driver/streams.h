#ifndef RINGPIPE_CUDA_FAKE_DRIVER_STREAMS_H_
#define RINGPIPE_CUDA_FAKE_DRIVER_STREAMS_H_

#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "cuda/fake_driver/abi.h"
#include "cuda/fake_driver/captures.h"
#include "cuda/fake_driver/contexts.h"
#include "cuda/fake_driver/queues.h"

namespace fake_cuda {

struct Stream {
  Context* context;
  bool blocking;  // ordered with the legacy default stream
  int priority;
  int queue;               // of its device
  CompletionPointer last;  // what was put in last
  bool is_default = false;
};

struct Event {
  Context* context;
  CompletionPointer completion;          // nullptr: nothing to wait for
  Captures::Capture* capture = nullptr;  // where it was recorded last
  Stream* stream = nullptr;              // likewise
};

// Streams and events, and in which order operations take effect. Thread-safe.
//
// The legacy default stream: each of its operations waits for all that blocking
// streams of its context were given before, and they wait for it (CUDA Runtime
// API, "Stream synchronization behavior"). Default streams of threads are
// blocking ones.
class Streams {
 public:
  // `devices` and `captures` outlive it.
  Streams(const std::vector<std::unique_ptr<Queues>>& devices,
          Captures& captures)
      : devices_(devices), captures_(captures) {}

  Stream* Create(Context* context, bool blocking, int priority);
  bool Destroy(Stream* stream);
  // The stream behind a handle; NULL, and CU_STREAM_LEGACY (1), are the
  // context's legacy one, CU_STREAM_PER_THREAD (2) is the calling thread's.
  // nullptr: a handle of none.
  Stream* Find(Stream* handle, Context* context);

  // Puts work into a stream, or (*captured) into the graph that it captures.
  Result Put(Stream* stream, Queues::Work work,
             CompletionPointer* completion = nullptr);
  // Waits for all that the stream was given.
  Result Synchronize(Stream* stream);
  Result Query(Stream* stream);
  // The capture of a blocking stream, which forbids operations on this one, the
  // legacy default stream. nullptr: of another stream, or none.
  Captures::Capture* CaptureBeside(const Stream* stream);

  Event* CreateEvent(Context* context);
  bool DestroyEvent(Event* event);
  bool IsEvent(Event* event);
  Result Record(Event* event, Stream* stream);
  Result WaitFor(Stream* stream, Event* event);
  // kNotReady, or kSuccess; of an event that was never recorded the latter
  // (cuEventRecord: "captures" nothing then).
  Result QueryEvent(Event* event);
  Result SynchronizeEvent(Event* event);

  // What lives in a context that is destroyed.
  void DestroyAllOf(const Context* context);

  int live_streams();
  int live_events();

 private:
  Stream* CreateLocked(Context* context, bool blocking, int priority);
  Queues& QueuesOf(const Stream& stream) {
    return *devices_[static_cast<std::size_t>(stream.context->device)];
  }
  CompletionPointer PutLocked(Stream& stream, Queues::Work work,
                              std::vector<CompletionPointer> after);
  Captures::Capture* CaptureBesideLocked(const Stream& stream);
  Result CheckLegacy(const Stream& stream);
  Result CheckEvent(Event* event);

  const std::vector<std::unique_ptr<Queues>>& devices_;
  Captures& captures_;
  std::mutex mutex_;
  std::set<Stream*> streams_;
  std::set<Event*> events_;
  int next_queue_ = 0;
};

}  // namespace fake_cuda

#endif  // RINGPIPE_CUDA_FAKE_DRIVER_STREAMS_H_
