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
  added->next = self->newest_.load(std::memory_order_relaxed);
  while (!self->newest_.compare_exchange_weak(added->next, added,
                                              std::memory_order_release,
                                              std::memory_order_relaxed)) {
  }
}

void LogLines::Take() {
  Line* taken = nullptr;
  for (Line* line = newest_.exchange(nullptr, std::memory_order_acquire);
       line != nullptr;) {
    Line* const older = line->next;
    line->next = taken;
    taken = line;
    line = older;
  }
  Line** end = &oldest_;
  while (*end != nullptr) {
    end = &(*end)->next;
  }
  *end = taken;
}

void LogLines::DeliverAll() {
  Take();
  while (oldest_ != nullptr) {
    // Off the list: logging may be used by others meanwhile, who come here too.
    Line* const line = oldest_;
    oldest_ = line->next;
    PyObject* const text =
        PyUnicode_DecodeUTF8(line->text, std::strlen(line->text), "replace");
    PyObject* const done =
        text == nullptr || hooks.deliver_log == nullptr
            ? nullptr
            : PyObject_CallFunction(hooks.deliver_log, "iO", line->level, text);
    Py_XDECREF(text);
    Py_XDECREF(done);
    std::free(line);
    if (done == nullptr && PyErr_Occurred() != nullptr) {
      if (PyErr_ExceptionMatches(PyExc_Exception) == 0) {
        return;
      }
      PyErr_WriteUnraisable(hooks.deliver_log);
    }
  }
}

}  // namespace ringpipe::python
