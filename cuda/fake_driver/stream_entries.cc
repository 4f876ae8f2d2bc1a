// Entry points about streams, events and capture.
#include "cuda/fake_driver/driver.h"
#include "cuda/fake_driver/entry_points.h"

namespace fake_cuda {
namespace {

constexpr int kGreatestPriority = -5;

// nullptr: CUDA_ERROR_INVALID_HANDLE.
Stream* Find(Stream* handle) {
  return Driver::Get().streams.Find(handle, Contexts::Current());
}

}  // namespace

struct Graph {};

FAKE_CUDA_ENTRY Result cuStreamCreate(Stream** stream, unsigned flags) {
  FAKE_CUDA_BEGIN("cuStreamCreate", kWork)
  *stream = Driver::Get().streams.Create(Contexts::Current(),
                                         (flags & kStreamNonBlocking) == 0, 0);
  return kSuccess;
}

// "If the specified priority is outside the numerical range ..., it will
// automatically be clamped" (cuStreamCreateWithPriority).
FAKE_CUDA_ENTRY Result cuStreamCreateWithPriority(Stream** stream,
                                                  unsigned flags,
                                                  int priority) {
  FAKE_CUDA_BEGIN("cuStreamCreateWithPriority", kWork)
  priority = priority > 0                   ? 0
             : priority < kGreatestPriority ? kGreatestPriority
                                            : priority;
  *stream = Driver::Get().streams.Create(
      Contexts::Current(), (flags & kStreamNonBlocking) == 0, priority);
  return kSuccess;
}

FAKE_CUDA_ENTRY Result cuStreamDestroy_v2(Stream* stream) {
  FAKE_CUDA_BEGIN("cuStreamDestroy", kWork)
  return Driver::Get().streams.Destroy(stream) ? kSuccess : kInvalidHandle;
}

FAKE_CUDA_ENTRY Result cuStreamGetPriority(Stream* stream, int* priority) {
  FAKE_CUDA_BEGIN("cuStreamGetPriority", kWork)
  const Stream* const found = Find(stream);
  if (found == nullptr) {
    return kInvalidHandle;
  }
  *priority = found->priority;
  return kSuccess;
}

FAKE_CUDA_ENTRY Result cuStreamQuery(Stream* stream) {
  FAKE_CUDA_BEGIN("cuStreamQuery", kWork | kOutsideCapture)
  Stream* const found = Find(stream);
  return found == nullptr ? kInvalidHandle : Driver::Get().streams.Query(found);
}

FAKE_CUDA_ENTRY Result cuStreamSynchronize(Stream* stream) {
  FAKE_CUDA_BEGIN("cuStreamSynchronize", kWork | kOutsideCapture)
  Driver& driver = Driver::Get();
  Stream* const found = Find(stream);
  const Result result =
      found == nullptr ? kInvalidHandle : driver.streams.Synchronize(found);
  return result == kSuccess ? driver.calls.sticky() : result;
}

FAKE_CUDA_ENTRY Result cuStreamWaitEvent(Stream* stream, Event* event,
                                         unsigned /*flags*/) {
  FAKE_CUDA_BEGIN("cuStreamWaitEvent", kWork)
  Driver& driver = Driver::Get();
  Stream* const found = Find(stream);
  return found == nullptr || !driver.streams.IsEvent(event)
             ? kInvalidHandle
             : driver.streams.WaitFor(found, event);
}

FAKE_CUDA_ENTRY Result cuLaunchHostFunc(Stream* stream, HostFunction function,
                                        void* argument) {
  FAKE_CUDA_BEGIN("cuLaunchHostFunc", kWork)
  Stream* const found = Find(stream);
  return found == nullptr
             ? kInvalidHandle
             : Driver::Get().streams.Put(
                   found, [function, argument](const Queues::Dawdle&) {
                     function(argument);
                   });
}

// Not on the legacy stream ("hStream must not be CU_STREAM_LEGACY",
// cuStreamBeginCapture).
FAKE_CUDA_ENTRY Result cuStreamBeginCapture_v2(Stream* stream, int mode) {
  FAKE_CUDA_BEGIN("cuStreamBeginCapture", kWork)
  Driver& driver = Driver::Get();
  Stream* const found = Find(stream);
  if (found == nullptr) {
    return kInvalidHandle;
  }
  if (found == Contexts::Current()->legacy) {
    return kCaptureUnsupported;
  }
  return mode < kCaptureGlobal || mode > kCaptureRelaxed
             ? kInvalidValue
             : driver.captures.Begin(found, mode);
}

FAKE_CUDA_ENTRY Result cuStreamEndCapture(Stream* stream, Graph** graph) {
  FAKE_CUDA_BEGIN("cuStreamEndCapture", kWork)
  *graph = nullptr;
  Stream* const found = Find(stream);
  if (found == nullptr) {
    return kInvalidHandle;
  }
  bool valid = false;
  const Result result = Driver::Get().captures.End(found, &valid);
  if (result == kSuccess) {
    *graph = new Graph;
  }
  return result;
}

FAKE_CUDA_ENTRY Result cuStreamIsCapturing(Stream* stream, int* status) {
  FAKE_CUDA_BEGIN("cuStreamIsCapturing", kWork)
  Stream* const found = Find(stream);
  if (found == nullptr) {
    return kInvalidHandle;
  }
  // "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT" of the legacy default stream, while a
  // blocking stream captures; that one's capture is not harmed
  // (cuStreamIsCapturing).
  if (Driver::Get().streams.CaptureBeside(found) != nullptr) {
    return kCaptureImplicit;
  }
  const Captures::Capture* const capture = Driver::Get().captures.Of(found);
  *status = capture == nullptr ? kNotCapturing
            : capture->valid   ? kCapturing
                               : kCaptureWasInvalidated;
  return kSuccess;
}

// Whether it wants a current context nobody says (pytorch #148594 asks); the
// stricter of two.
FAKE_CUDA_ENTRY Result cuThreadExchangeStreamCaptureMode(int* mode) {
  FAKE_CUDA_BEGIN("cuThreadExchangeStreamCaptureMode", kInitialised | kContext)
  if (*mode < kCaptureGlobal || *mode > kCaptureRelaxed) {
    return kInvalidValue;
  }
  *mode = Captures::ExchangeMode(*mode);
  return kSuccess;
}

FAKE_CUDA_ENTRY Result cuGraphDestroy(Graph* graph) {
  FAKE_CUDA_BEGIN("cuGraphDestroy", kInitialised | kLiving)
  delete graph;
  return kSuccess;
}

FAKE_CUDA_ENTRY Result cuEventCreate(Event** event, unsigned /*flags*/) {
  FAKE_CUDA_BEGIN("cuEventCreate", kWork)
  *event = Driver::Get().streams.CreateEvent(Contexts::Current());
  return kSuccess;
}

FAKE_CUDA_ENTRY Result cuEventDestroy_v2(Event* event) {
  FAKE_CUDA_BEGIN("cuEventDestroy", kWork)
  return Driver::Get().streams.DestroyEvent(event) ? kSuccess : kInvalidHandle;
}

// "hEvent and hStream must be from the same context" (cuEventRecord).
FAKE_CUDA_ENTRY Result cuEventRecord(Event* event, Stream* stream) {
  FAKE_CUDA_BEGIN("cuEventRecord", kWork)
  Driver& driver = Driver::Get();
  Stream* const found = Find(stream);
  return found == nullptr || !driver.streams.IsEvent(event) ||
                 event->context != found->context
             ? kInvalidHandle
             : driver.streams.Record(event, found);
}

FAKE_CUDA_ENTRY Result cuEventQuery(Event* event) {
  FAKE_CUDA_BEGIN("cuEventQuery", kWork | kOutsideCapture)
  Driver& driver = Driver::Get();
  const Result result = driver.streams.IsEvent(event)
                            ? driver.streams.QueryEvent(event)
                            : kInvalidHandle;
  // What ended the context was seen before the event.
  return result == kSuccess ? driver.calls.sticky() : result;
}

FAKE_CUDA_ENTRY Result cuEventSynchronize(Event* event) {
  FAKE_CUDA_BEGIN("cuEventSynchronize", kWork | kOutsideCapture)
  Driver& driver = Driver::Get();
  const Result result = driver.streams.IsEvent(event)
                            ? driver.streams.SynchronizeEvent(event)
                            : kInvalidHandle;
  return result == kSuccess ? driver.calls.sticky() : result;
}

}  // namespace fake_cuda
