// What bench/python/overhead.py measures Python's calls with: a C loop of the
// same calls, and the least that a Python function can do that takes their
// arguments.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <cstring>
#include <ctime>

#include "engine/ringpipe.h"

namespace {

ringpipe_communicator* communicator = nullptr;

double NowUs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 +
         static_cast<double>(now.tv_nsec) / 1e3;
}

// parse(x, op, out, timeout): takes their values, lets the GIL go, and takes it
// again.
PyObject* Parse(PyObject* /*module*/, PyObject* const* arguments,
                Py_ssize_t number) {
  Py_buffer view;
  if (number != 4 || PyObject_GetBuffer(arguments[0], &view,
                                        PyBUF_FORMAT | PyBUF_C_CONTIGUOUS |
                                            PyBUF_WRITABLE) != 0) {
    return nullptr;
  }
  const char* const op = PyUnicode_AsUTF8AndSize(arguments[1], nullptr);
  if (op == nullptr || std::strcmp(op, "sum") != 0 || view.format == nullptr ||
      arguments[2] != Py_None || arguments[3] != Py_None) {
    PyBuffer_Release(&view);
    PyErr_SetString(PyExc_ValueError, "parse(x, \"sum\", None, None)");
    return nullptr;
  }
  Py_BEGIN_ALLOW_THREADS;
  Py_END_ALLOW_THREADS;
  PyBuffer_Release(&view);
  return Py_NewRef(arguments[0]);
}

// join(rank, size, root)
PyObject* Join(PyObject* /*module*/, PyObject* arguments) {
  ringpipe_options options = {};
  options.struct_size = sizeof options;
  options.explicit_rank = 1;
  if (PyArg_ParseTuple(arguments, "iis", &options.rank, &options.size,
                       &options.root) == 0) {
    return nullptr;
  }
  if (ringpipe_create(&options, &communicator) != RINGPIPE_OK) {
    PyErr_SetString(PyExc_RuntimeError, ringpipe_error_message());
    return nullptr;
  }
  Py_RETURN_NONE;
}

// c_calls(x, number): microseconds for so many allreduces of x, float32, in
// place.
PyObject* CCalls(PyObject* /*module*/, PyObject* arguments) {
  Py_buffer view;
  int number = 0;
  if (PyArg_ParseTuple(arguments, "w*i", &view, &number) == 0) {
    return nullptr;
  }
  ringpipe_status status = RINGPIPE_OK;
  double us = 0;
  Py_BEGIN_ALLOW_THREADS;
  const double began = NowUs();
  for (int i = 0; i < number && status == RINGPIPE_OK; ++i) {
    status = ringpipe_all_reduce(communicator, view.buf, view.buf,
                                 static_cast<std::size_t>(view.len) / 4,
                                 RINGPIPE_FLOAT32, RINGPIPE_SUM,
                                 RINGPIPE_DEFAULT_TIMEOUT, nullptr);
  }
  us = NowUs() - began;
  Py_END_ALLOW_THREADS;
  PyBuffer_Release(&view);
  if (status != RINGPIPE_OK) {
    PyErr_SetString(PyExc_RuntimeError, ringpipe_error_message());
    return nullptr;
  }
  return PyFloat_FromDouble(us);
}

PyObject* Leave(PyObject* /*module*/, PyObject* /*none*/) {
  Py_BEGIN_ALLOW_THREADS;
  ringpipe_destroy(communicator);
  Py_END_ALLOW_THREADS;
  communicator = nullptr;
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"parse", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&Parse)),
     METH_FASTCALL, nullptr},
    {"join", &Join, METH_VARARGS, nullptr},
    {"c_calls", &CCalls, METH_VARARGS, nullptr},
    {"leave", &Leave, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "yardstick",
    nullptr,
    -1,
    methods,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

}  // namespace

PyMODINIT_FUNC PyInit_yardstick(void) { return PyModule_Create(&definition); }
