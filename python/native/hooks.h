// What the extension asks of the package's Python code: exceptions, messages,
// logging, and what arrays of other libraries say of themselves, none of which
// is worth writing in C.
#ifndef RINGPIPE_PYTHON_NATIVE_HOOKS_H_
#define RINGPIPE_PYTHON_NATIVE_HOOKS_H_

#include "python/native/python.h"
// After Python.h, which wants to be first.
#include "engine/ringpipe.h"

namespace ringpipe::python {

// Each a Python function, or nullptr before _native.initialise.
struct Hooks {
  PyObject* make_error;  // (status, message, ranks, before) -> exception
  PyObject* explain;  // (array, writable, cause): raises, and says what to do
  PyObject* deliver_log;  // (level, line)
  // (array, writable, stream) -> (a DLPack capsule, whether it is memory of a
  // device)
  PyObject* export_tensor;
  // (array, writable, asks_stream) -> (address, elements, bytes of one, type,
  // stream)
  PyObject* read_cuda_array;
};
extern Hooks hooks;

// What ringpipe says of this thread's last error, before another call says
// something else. nullptr with an exception.
PyObject* ErrorMessage();
// Sets the exception of that status. Returns nullptr. Steals `message`, which
// may be nullptr with an exception, and `ranks`, a tuple, or nullptr: none.
// `before`: the communicator had failed (1), or had been interrupted (2),
// before this call.
PyObject* SetError(ringpipe_status status, PyObject* message,
                   PyObject* ranks = nullptr, int before = 0);
// The same, kInvalidArgument, with a message as PyUnicode_FromFormat has it.
PyObject* SetInvalid(const char* format, ...);

}  // namespace ringpipe::python

#endif  // RINGPIPE_PYTHON_NATIVE_HOOKS_H_
