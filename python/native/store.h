#ifndef RINGPIPE_PYTHON_NATIVE_STORE_H_
#define RINGPIPE_PYTHON_NATIVE_STORE_H_

#include "python/native/python.h"
// After Python.h.
#include "engine/ringpipe.h"

namespace ringpipe::python {

// `store`, an object with put(key, value) and get(key, timeout), for
// ringpipe_create. The object outlives what is returned. What it raises stays
// set, as the exception of the creation.
ringpipe_store StoreOf(PyObject* store);

}  // namespace ringpipe::python

#endif  // RINGPIPE_PYTHON_NATIVE_STORE_H_
