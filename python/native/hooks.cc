#include "python/native/hooks.h"

#include <cstdarg>
#include <cstring>

namespace ringpipe::python {

Hooks hooks = {};

PyObject* ErrorMessage() {
  // A host's name, or a path, may be in any encoding.
  const char* const message = ringpipe_error_message();
  return PyUnicode_DecodeUTF8(message, std::strlen(message), "replace");
}

PyObject* SetError(ringpipe_status status, PyObject* message, PyObject* ranks,
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

PyObject* SetInvalid(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  PyObject* const message = PyUnicode_FromFormatV(format, arguments);
  va_end(arguments);
  return SetError(RINGPIPE_INVALID_ARGUMENT, message);
}

}  // namespace ringpipe::python
