// Python's C API, the part of it that stays: the extension is compiled once,
// for Python 3.11 and whatever follows.
//
// Rules of this folder, each with its reason:
//
// - Only threads that called the package take the GIL, and what waits releases
//   it (WithoutGil). ringpipe's own threads never take it: they would wait for
//   Python, and everybody's calls for them.
// - It is compiled without exceptions, so no destructor runs when Python ends a
//   daemon thread, and nothing here is noexcept: PyEval_RestoreThread leaves by
//   pthread_exit then, through the frames above it. Therefore memory comes from
//   PyMem_* and malloc, which return null.
// - The module is refused in sub-interpreters. So there is one in a process,
//   and what belongs to it is static.
#ifndef RINGPIPE_PYTHON_NATIVE_PYTHON_H_
#define RINGPIPE_PYTHON_NATIVE_PYTHON_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace ringpipe::python {

// The calling thread's state while it is without the GIL in a call of ringpipe;
// else nullptr. WhileWaiting takes the GIL with it. (initial-exec: no function
// is called to find it, in each call three times.)
extern constinit thread_local PyThreadState* waiting_thread
    __attribute__((tls_model("initial-exec")));

// What `function` returns, called without the GIL.
template <typename Function>
auto WithoutGil(Function function) {
  PyThreadState* const outer = waiting_thread;
  PyThreadState* const state = PyEval_SaveThread();
  waiting_thread = state;
  const auto result = function();
  waiting_thread = outer;
  PyEval_RestoreThread(state);
  return result;
}

// Sets aside the exception that is set, for what must not see it.
class ExceptionAside {
 public:
  ExceptionAside() { PyErr_Fetch(&type_, &value_, &traceback_); }
  bool is_set() const { return type_ != nullptr; }
  // What was raised meanwhile is lost if one was set before.
  void Restore() {
    if (type_ != nullptr) {
      PyErr_Restore(type_, value_, traceback_);
    }
  }
  void Drop() {
    Py_XDECREF(type_);
    Py_XDECREF(value_);
    Py_XDECREF(traceback_);
    type_ = nullptr;
  }

 private:
  PyObject* type_ = nullptr;
  PyObject* value_ = nullptr;
  PyObject* traceback_ = nullptr;
};

// Calls `function`, which may run any code. An exception that is set stays, and
// one that is raised meanwhile is reported.
template <typename Function>
void WithExceptionAside(Function function) {
  ExceptionAside aside;
  function();
  if (PyErr_Occurred() != nullptr) {
    PyErr_WriteUnraisable(nullptr);
  }
  aside.Restore();
}

}  // namespace ringpipe::python

#endif  // RINGPIPE_PYTHON_NATIVE_PYTHON_H_
