#ifndef RINGPIPE_PYTHON_NATIVE_TYPES_H_
#define RINGPIPE_PYTHON_NATIVE_TYPES_H_

#include "python/native/python.h"

namespace ringpipe::python {

// Adds Communicator, Request and Memory to the module;
// python/ringpipe/_native.pyi describes them. False with an exception.
bool AddTypes(PyObject* module);

}  // namespace ringpipe::python

#endif  // RINGPIPE_PYTHON_NATIVE_TYPES_H_
