#include "python/native/hooks.h"

#include <cstdarg>
#include <cstring>

namespace ringpipe::python {

Hooks hooks = {};

namespace {

// Steals both.
PyObject* Raise(ringpipe_status status, PyObject* message, PyObject* ranks,
                int before) {
  if (ranks == nullptr) {
    ranks = PyTuple_New(0);
  }
  if (message == nullptr || ranks == nullptr || hooks.make_error == nullptr) {
    if (PyErr_Occurred() == nullptr) {
      PyErr_SetString(PyExc_RuntimeError, "import ringpipe, not its _native");
    }
  } else if (PyObject* const error = PyObject_CallFunction(
                 hooks.make_error, "iOOi", status, message, ranks, before)) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error)), error);
    Py_DECREF(error);
  }
  Py_XDECREF(message);
  Py_XDECREF(ranks);
  return nullptr;
}

}  // namespace

PyObject* SetError(ringpipe_status status, const char* message, PyObject* ranks,
                   int before) {
  // A host's name, or a path, may be in any encoding.
  return Raise(status,
               PyUnicode_DecodeUTF8(message, std::strlen(message), "replace"),
               ranks, before);
}

PyObject* SetInvalid(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  PyObject* const message = PyUnicode_FromFormatV(format, arguments);
  va_end(arguments);
  return Raise(RINGPIPE_INVALID_ARGUMENT, message, nullptr, 0);
}

}  // namespace ringpipe::python
