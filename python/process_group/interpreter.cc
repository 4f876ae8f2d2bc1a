#include "python/process_group/interpreter.h"

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <utility>

namespace ringpipe::process_group {
namespace {

constinit thread_local bool may_raise = false;
// Whether a handler has raised an exception, which Python keeps for Throw.
constinit thread_local bool has_raised = false;

}  // namespace

int RunSignalHandlers(void* /*unused*/) {
  // Python runs signal handlers on its main thread alone.
  if (!may_raise || gettid() != getpid()) {
    return 0;
  }
  const pybind11::gil_scoped_acquire gil;
  has_raised = PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0;
  return has_raised ? 1 : 0;
}

MayRaise::MayRaise() : outer_(std::exchange(may_raise, true)) {}

MayRaise::~MayRaise() { may_raise = outer_; }

// Its name says what it does to callers; the object says that it may.
void MayRaise::Throw()
    const {  // NOLINT(readability-convert-member-functions-to-static)
  if (!std::exchange(has_raised, false)) {
    return;
  }
  const pybind11::gil_scoped_acquire gil;
  if (PyErr_Occurred() != nullptr) {
    throw pybind11::error_already_set();
  }
}

bool HasGil() { return Py_IsInitialized() != 0 && PyGILState_Check() != 0; }

WithoutGil::WithoutGil() : state_(HasGil() ? PyEval_SaveThread() : nullptr) {}

WithoutGil::~WithoutGil() {
  if (state_ != nullptr) {
    PyEval_RestoreThread(static_cast<PyThreadState*>(state_));
  }
}

}  // namespace ringpipe::process_group
