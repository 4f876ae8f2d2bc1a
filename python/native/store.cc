#include "python/native/store.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "python/native/handle.h"
#include "python/native/hooks.h"

namespace ringpipe::python {
namespace {

constexpr int kFailed = -1;

// What `function` returns, called with the GIL: on the thread that is in
// ringpipe_create. Once an exception is set it is not called again.
template <typename Function>
int WithGil(Function function) {
  PyEval_RestoreThread(waiting_thread);
  const bool outer = std::exchange(may_not_destroy, true);
  const int result = PyErr_Occurred() == nullptr ? function() : kFailed;
  may_not_destroy = outer;
  waiting_thread = PyEval_SaveThread();
  return result;
}

int Put(void* store, const char* key, const void* value, std::size_t bytes) {
  return WithGil([&] {
    PyObject* const done = PyObject_CallMethod(
        static_cast<PyObject*>(store), "put", "sy#", key,
        static_cast<const char*>(value), static_cast<Py_ssize_t>(bytes));
    Py_XDECREF(done);
    return done == nullptr ? kFailed : 0;
  });
}

// Copies what get() has returned.
int TakeValue(PyObject* found, void* value, std::size_t capacity,
              std::size_t* bytes) {
  if (found == Py_None) {
    return RINGPIPE_STORE_NOT_YET;
  }
  Py_buffer view;
  if (PyObject_GetBuffer(found, &view, PyBUF_SIMPLE) != 0) {
    return kFailed;
  }
  *bytes = static_cast<std::size_t>(view.len);
  const bool fits = *bytes <= capacity;
  if (fits) {
    std::memcpy(value, view.buf, *bytes);
  } else {
    SetInvalid(
        "the store's get returned %zu bytes, more than put can have been given",
        *bytes);
  }
  PyBuffer_Release(&view);
  return fits ? 0 : kFailed;
}

int Get(void* store, const char* key, std::int64_t timeout_ms, void* value,
        std::size_t capacity, std::size_t* bytes) {
  return WithGil([&] {
    PyObject* const found =
        PyObject_CallMethod(static_cast<PyObject*>(store), "get", "sd", key,
                            static_cast<double>(timeout_ms) / 1000);
    const int result =
        found == nullptr ? kFailed : TakeValue(found, value, capacity, bytes);
    Py_XDECREF(found);
    return result;
  });
}

}  // namespace

ringpipe_store StoreOf(PyObject* store) {
  ringpipe_store made = {};
  made.struct_size = sizeof made;
  made.put = &Put;
  made.get = &Get;
  made.context = store;
  return made;
}

}  // namespace ringpipe::python
