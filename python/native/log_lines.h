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

  bool is_empty() const {
    return newest_.load(std::memory_order_relaxed) == nullptr;
  }
  // Gives all lines to logging, in their order. With the GIL, and no exception
  // set; sets one only if logging was interrupted (KeyboardInterrupt).
  void Deliver() {
    if (!is_empty()) {
      DeliverAll();
    }
  }

 private:
  struct Line {
    Line* older;
    ringpipe_log_level level;
    char text[1];  // and more
  };

  void DeliverAll();

  // A stack: whoever takes it takes all of it.
  std::atomic<Line*> newest_ = nullptr;
};

}  // namespace ringpipe::python

#endif  // RINGPIPE_PYTHON_NATIVE_LOG_LINES_H_
