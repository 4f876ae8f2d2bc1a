// ringpipe._native: the module, and its three types.
#include "python/native/python.h"
// After Python.h.

#include <initializer_list>

#include "engine/ringpipe.h"
#include "python/native/handle.h"
#include "python/native/hooks.h"
#include "python/native/types.h"

namespace ringpipe::python {
namespace {

// initialise(make_error, explain, deliver_log, export_tensor, read_cuda_array)
PyObject* Initialise(PyObject* /*module*/, PyObject* arguments) {
  Hooks given = {};
  if (PyArg_ParseTuple(arguments, "OOOOO", &given.make_error, &given.explain,
                       &given.deliver_log, &given.export_tensor,
                       &given.read_cuda_array) == 0) {
    return nullptr;
  }
  for (PyObject* const hook :
       {given.make_error, given.explain, given.deliver_log, given.export_tensor,
        given.read_cuda_array}) {
    Py_INCREF(hook);
  }
  hooks = given;
  Py_RETURN_NONE;
}

PyObject* Version(PyObject* /*module*/, PyObject* /*none*/) {
  return PyUnicode_FromString(ringpipe_version());
}

bool IsMainInterpreter() {
  return PyInterpreterState_GetID(PyInterpreterState_Get()) == 0;
}

int Execute(PyObject* module) {
  if (!IsMainInterpreter()) {
    PyErr_SetString(
        PyExc_ImportError,
        "ringpipe cannot be imported in a sub-interpreter; import it in "
        "the main one, or start a process (ringpipe.spawn)");
    return -1;
  }
  WatchForks();
  return AddTypes(module) ? 0 : -1;
}

PyMethodDef methods[] = {
    {"initialise", &Initialise, METH_VARARGS, nullptr},
    {"version", &Version, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef_Slot slots[] = {
    {Py_mod_exec, reinterpret_cast<void*>(&Execute)},
    {0, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "ringpipe._native",
    nullptr,
    0,
    methods,
    slots,
    nullptr,
    nullptr,
    nullptr,
};

}  // namespace
}  // namespace ringpipe::python

// The name by which Python finds it.
// NOLINTNEXTLINE(clang-diagnostic-reserved-identifier)
PyMODINIT_FUNC PyInit__native(void) {
  return PyModuleDef_Init(&ringpipe::python::definition);
}
