#ifndef RINGPIPE_CUDA_FAKE_DRIVER_CAPTURES_H_
#define RINGPIPE_CUDA_FAKE_DRIVER_CAPTURES_H_

#include <list>
#include <map>
#include <mutex>
#include <thread>

#include "cuda/fake_driver/abi.h"

namespace fake_cuda {

// Captures of graphs that threads have begun. Of a graph nothing is kept but
// that it was captured: it cannot be launched.
//
// Which calls are "potentially unsafe" and whom they hit: cuda.h at
// cuThreadExchangeStreamCaptureMode. That cuEventQuery is one of them, also on
// an event that no capture knows, and that it invalidates the other thread's
// capture: pytorch #104487, #105182, #148594. Thread-safe.
class Captures {
 public:
  struct Capture {
    int mode;
    std::thread::id thread;
    Stream* origin;
    bool valid = true;
    // The streams that have joined, but `origin`; whether `origin` has waited
    // for all that they captured.
    std::map<Stream*, bool> joined;
  };

  // The calling thread's mode.
  static int ExchangeMode(int mode);

  // Of a call that is potentially unsafe, before it does anything: the error
  // with which it fails, having invalidated the captures that forbid it.
  Result CheckUnsafe();

  Result Begin(Stream* stream, int mode);
  Result End(Stream* stream, bool* was_valid);

  // The capture that the stream is in; nullptr: none.
  Capture* Of(const Stream* stream);
  // For an operation on a stream: kSuccess where it is captured or (*captured
  // is false) to be executed.
  Result CheckOperation(Stream* stream, bool* captured);
  void Invalidate(Capture* capture);
  // `stream` waits for what `from` has captured.
  Result Wait(Stream* stream, Stream* from, Capture* capture);
  bool Alive(const Capture* capture) const;

 private:
  Capture* OfLocked(const Stream* stream);

  mutable std::mutex mutex_;
  std::list<Capture> captures_;
};

}  // namespace fake_cuda

#endif  // RINGPIPE_CUDA_FAKE_DRIVER_CAPTURES_H_
