#include "python/native/log_lines.h"

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "python/native/hooks.h"

namespace ringpipe::python {

void LogLines::Add(ringpipe_log_level level, const char* line, void* lines) {
  const std::size_t length = std::strlen(line);
  auto* const added =
      static_cast<Line*>(std::malloc(offsetof(Line, text) + length + 1));
  if (added == nullptr) {
    return;
  }
  added->level = level;
  std::memcpy(added->text, line, length + 1);
  auto* const self = static_cast<LogLines*>(lines);
  added->older = self->newest_.load(std::memory_order_relaxed);
  while (!self->newest_.compare_exchange_weak(added->older, added,
                                              std::memory_order_release,
                                              std::memory_order_relaxed)) {
  }
}

void LogLines::DeliverAll() {
  Line* oldest = nullptr;
  for (Line* line = newest_.exchange(nullptr, std::memory_order_acquire);
       line != nullptr;) {
    Line* const older = line->older;
    line->older = oldest;
    oldest = line;
    line = older;
  }
  while (oldest != nullptr) {
    Line* const next = oldest->older;
    PyObject* const text = PyUnicode_DecodeUTF8(
        oldest->text, std::strlen(oldest->text), "replace");
    PyObject* const done = text == nullptr || hooks.deliver_log == nullptr
                               ? nullptr
                               : PyObject_CallFunction(hooks.deliver_log, "iO",
                                                       oldest->level, text);
    if (done == nullptr && PyErr_Occurred() != nullptr &&
        PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) == 0) {
      PyErr_WriteUnraisable(hooks.deliver_log);
    }
    Py_XDECREF(text);
    Py_XDECREF(done);
    std::free(oldest);
    oldest = next;
  }
}

}  // namespace ringpipe::python
