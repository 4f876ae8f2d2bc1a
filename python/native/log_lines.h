#ifndef RINGPIPE_PYTHON_NATIVE_LOG_LINES_H_
#define RINGPIPE_PYTHON_NATIVE_LOG_LINES_H_

#include <atomic>

#include "python/native/python.h"
// After Python.h.
#include "engine/ringpipe.h"

namespace ringpipe::python {

// A communicator's log lines, on their way from ringpipe's threads, which must
// not run Python, to Python's logging.
class LogLines {
 public:
  // ringpipe_log_callback; `lines` is a LogLines. On any thread, without the
  // GIL. A line for which there is no memory is dropped.
  static void Add(ringpipe_log_level level, const char* line, void* lines);

  // With the GIL.
  bool is_empty() const {
    return newest_.load(std::memory_order_relaxed) == nullptr &&
           oldest_ == nullptr;
  }
  // Gives all lines to logging, in their order. With the GIL, and no exception
  // set. If logging raises one that is no Exception (KeyboardInterrupt,
  // SystemExit), that stays set, and the other lines stay here.
  void Deliver() {
    if (!is_empty()) {
      DeliverAll();
    }
  }

 private:
  struct Line {
    Line* next;  // the one before it, in newest_; the one after it, in oldest_
    ringpipe_log_level level;
    char text[1];  // and more
  };

  void DeliverAll();
  void Take();

  // A stack: whoever takes it takes all of it.
  std::atomic<Line*> newest_ = nullptr;
  // What has been taken from there, in its order. With the GIL.
  Line* oldest_ = nullptr;
};

}  // namespace ringpipe::python

#endif  // RINGPIPE_PYTHON_NATIVE_LOG_LINES_H_
