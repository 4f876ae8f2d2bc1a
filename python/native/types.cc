#include "python/native/types.h"

#include <cstddef>
#include <cstdint>

#include "python/native/call.h"
#include "python/native/handle.h"
#include "python/native/hooks.h"
#include "python/native/store.h"

namespace ringpipe::python {
namespace {

// Heap types, which their objects refer to.
void FreeObject(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

template <typename Object>
Object* NewObject(PyTypeObject* type) {
  return reinterpret_cast<Object*>(PyType_GenericAlloc(type, 0));
}

PyTypeObject* request_type = nullptr;
PyTypeObject* memory_type = nullptr;

template <typename Function>
void* Slot(Function function) {
  return reinterpret_cast<void*>(function);
}

template <typename Function>
PyCFunction Method(Function function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
}

// --- Request: a call under way -----------------------------------------------

struct RequestObject {
  PyObject head;
  PendingCall* call;
};

void RequestDealloc(PyObject* self) {
  PendingCall* const call = reinterpret_cast<RequestObject*>(self)->call;
  if (call != nullptr) {
    Handle* const handle = call->handle;
    handle->Disown(*call);
    handle->Drop();
  }
  FreeObject(self);
}

PyObject* RequestWait(PyObject* self, PyObject* seconds) {
  PendingCall* const call = reinterpret_cast<RequestObject*>(self)->call;
  std::int64_t timeout_ms = 0;
  if (!ReadTimeout(seconds, &timeout_ms) ||
      call->handle->Wait(*call, timeout_ms) != RINGPIPE_OK) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* RequestDone(PyObject* self, PyObject* /*none*/) {
  PendingCall* const call = reinterpret_cast<RequestObject*>(self)->call;
  int ended = 0;
  ringpipe_test(call->request, &ended);
  if (!call->handle->TidyUp()) {
    return nullptr;
  }
  return PyBool_FromLong(ended);
}

PyObject* RequestFileno(PyObject* self, PyObject* /*none*/) {
  const int fd =
      reinterpret_cast<RequestObject*>(self)->call->EventDescriptor();
  return fd < 0 ? nullptr : PyLong_FromLong(fd);
}

PyMethodDef request_methods[] = {
    {"wait", &RequestWait, METH_O, nullptr},
    {"done", &RequestDone, METH_NOARGS, nullptr},
    {"fileno", &RequestFileno, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot request_slots[] = {
    {Py_tp_dealloc, Slot(&RequestDealloc)},
    {Py_tp_methods, request_methods},
    {0, nullptr},
};

PyType_Spec request_spec = {
    "ringpipe._native.Request", sizeof(RequestObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, request_slots};

// --- Memory: a communicator's own, by the buffer protocol --------------------

struct MemoryObject {
  PyObject head;
  Handle* handle;
  void* data;
  Py_ssize_t bytes;
};

void MemoryDealloc(PyObject* self) {
  auto* const memory = reinterpret_cast<MemoryObject*>(self);
  if (memory->data != nullptr) {
    memory->handle->Free(memory->data);
  }
  FreeObject(self);
}

int MemoryGetBuffer(PyObject* self, Py_buffer* view, int flags) {
  auto* const memory = reinterpret_cast<MemoryObject*>(self);
  return PyBuffer_FillInfo(view, self, memory->data, memory->bytes, 0, flags);
}

PyType_Slot memory_slots[] = {
    {Py_tp_dealloc, Slot(&MemoryDealloc)},
    {Py_bf_getbuffer, Slot(&MemoryGetBuffer)},
    {0, nullptr},
};

PyType_Spec memory_spec = {
    "ringpipe._native.Memory", sizeof(MemoryObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, memory_slots};

// --- Communicator ------------------------------------------------------------

struct CommunicatorObject {
  PyObject head;
  Handle* handle;
};

Handle& HandleOf(PyObject* self) {
  return *reinterpret_cast<CommunicatorObject*>(self)->handle;
}

// Milliseconds of an option; 0 leaves it to the variable.
bool ReadOption(PyObject* seconds, std::int64_t* ms) {
  if (!ReadTimeout(seconds, ms)) {
    return false;
  }
  if (*ms == RINGPIPE_AT_ONCE) {
    SetInvalid("a timeout of 0 s is too short; give seconds, or None");
    return false;
  }
  return true;
}

// Communicator(rank, size, root, job_id, secret, host_id, timeout,
// join_timeout)
PyObject* CommunicatorNew(PyTypeObject* type, PyObject* arguments,
                          PyObject* /*keywords*/) {
  ringpipe_options options = {};
  options.struct_size = sizeof options;
  PyObject* rank = nullptr;
  PyObject* size = nullptr;
  PyObject* timeout = nullptr;
  PyObject* join_timeout = nullptr;
  PyObject* store = nullptr;
  if (PyArg_ParseTuple(arguments, "OOzzzzOOO", &rank, &size, &options.root,
                       &options.job_id, &options.secret, &options.host_id,
                       &timeout, &join_timeout, &store) == 0 ||
      !ReadOption(timeout, &options.timeout_ms) ||
      !ReadOption(join_timeout, &options.join_timeout_ms)) {
    return nullptr;
  }
  const ringpipe_store given_store = StoreOf(store);
  if (store != Py_None) {
    options.store = &given_store;
  }
  if (rank != Py_None) {
    options.explicit_rank = 1;
    if (PyArg_Parse(rank, "i", &options.rank) == 0 ||
        PyArg_Parse(size, "i", &options.size) == 0) {
      return nullptr;
    }
  }
  auto* const self = NewObject<CommunicatorObject>(type);
  if (self == nullptr) {
    return nullptr;
  }
  auto* const object = reinterpret_cast<PyObject*>(self);
  self->handle = Handle::New();
  if (self->handle == nullptr || !self->handle->Create(options)) {
    Py_DECREF(object);
    return nullptr;
  }
  return object;
}

void CommunicatorDealloc(PyObject* self) {
  Handle* const handle = reinterpret_cast<CommunicatorObject*>(self)->handle;
  if (handle != nullptr) {
    handle->Close(/*may_raise=*/false);
    handle->Drop();
  }
  FreeObject(self);
}

PyObject* CommunicatorRun(PyObject* self, PyObject* const* arguments,
                          Py_ssize_t number) {
  Handle& handle = HandleOf(self);
  CallArguments call;
  if (!call.Read(arguments, number, handle.rank(), handle.size())) {
    return nullptr;
  }
  return handle.Run(call) ? Py_NewRef(Py_None) : nullptr;
}

// allreduce(x, op="sum", *, out=None, timeout=None, dtype=None, stream=None):
// what is called most often, without a function in Python between.
PyObject* CommunicatorAllReduce(PyObject* self, PyObject* const* arguments,
                                Py_ssize_t number, PyObject* names) {
  constexpr const char* kNames[] = {"x",       "op",    "out",
                                    "timeout", "dtype", "stream"};
  constexpr Py_ssize_t kAll = sizeof kNames / sizeof kNames[0];
  PyObject* given[kAll] = {nullptr, nullptr, Py_None,
                           Py_None, Py_None, Py_None};
  const Py_ssize_t named = names == nullptr ? 0 : PyTuple_Size(names);
  bool fits = number <= 2;
  for (Py_ssize_t i = 0; fits && i < number; ++i) {
    given[i] = arguments[i];
  }
  for (Py_ssize_t i = 0; fits && i < named; ++i) {
    Py_ssize_t which = number;
    while (which < kAll && PyUnicode_CompareWithASCIIString(
                               PyTuple_GetItem(names, i), kNames[which]) != 0) {
      ++which;
    }
    fits = which < kAll;
    if (fits) {
      given[which] = arguments[number + i];
    }
  }
  if (!fits || given[0] == nullptr) {
    PyErr_SetString(
        PyExc_TypeError,
        "allreduce takes (x, op=\"sum\", *, out=None, timeout=None, "
        "dtype=None, stream=None)");
    return nullptr;
  }
  CallArguments call;
  if (!call.ReadAllReduce(given[0], given[1], given[2], given[3], given[4],
                          given[5])) {
    return nullptr;
  }
  if (!HandleOf(self).Run(call)) {
    return nullptr;
  }
  return Py_NewRef(given[2] == Py_None ? given[0] : given[2]);
}

PyObject* CommunicatorStart(PyObject* self, PyObject* const* arguments,
                            Py_ssize_t number) {
  Handle& handle = HandleOf(self);
  auto* const call =
      static_cast<PendingCall*>(PyMem_Calloc(1, sizeof(PendingCall)));
  auto* const request = NewObject<RequestObject>(request_type);
  if (call == nullptr || request == nullptr) {
    PyMem_Free(call);
    Py_XDECREF(reinterpret_cast<PyObject*>(request));
    return PyErr_NoMemory();
  }
  auto* const object = reinterpret_cast<PyObject*>(request);
  if (!call->arguments.Read(arguments, number, handle.rank(), handle.size())) {
    PyMem_Free(call);
    Py_DECREF(object);
    return nullptr;
  }
  const bool started = handle.Start(*call);
  if (call->request == nullptr) {
    PyMem_Free(call);
    Py_DECREF(object);
    return nullptr;
  }
  handle.Refer();
  request->call = call;
  if (!started) {  // it has, and a signal handler has raised something
    Py_DECREF(object);
    return nullptr;
  }
  return object;
}

PyObject* CommunicatorAllocate(PyObject* self, PyObject* number) {
  const Py_ssize_t bytes = PyLong_AsSsize_t(number);
  if (bytes == -1 && PyErr_Occurred() != nullptr) {
    return nullptr;
  }
  auto* const memory = NewObject<MemoryObject>(memory_type);
  if (memory == nullptr) {
    return nullptr;
  }
  memory->handle = &HandleOf(self);
  memory->bytes = bytes;
  memory->data = memory->handle->Allocate(static_cast<std::size_t>(bytes));
  if (memory->data == nullptr) {
    Py_DECREF(reinterpret_cast<PyObject*>(memory));
    return nullptr;
  }
  return reinterpret_cast<PyObject*>(memory);
}

PyObject* CommunicatorClose(PyObject* self, PyObject* /*none*/) {
  HandleOf(self).Close(/*may_raise=*/true);
  return PyErr_Occurred() != nullptr ? nullptr : Py_NewRef(Py_None);
}

PyObject* CommunicatorIsClosed(PyObject* self, PyObject* /*none*/) {
  return PyBool_FromLong(HandleOf(self).is_closed() ? 1 : 0);
}

PyObject* CommunicatorAbort(PyObject* self, PyObject* text) {
  const char* const reason = PyUnicode_AsUTF8AndSize(text, nullptr);
  if (reason == nullptr) {
    return nullptr;
  }
  HandleOf(self).Abort(reason);
  Py_RETURN_NONE;
}

PyObject* CommunicatorCheck(PyObject* self, PyObject* /*none*/) {
  return HandleOf(self).Failure() == RINGPIPE_OK ? Py_NewRef(Py_None) : nullptr;
}

PyObject* CommunicatorRank(PyObject* self, PyObject* /*none*/) {
  return PyLong_FromLong(HandleOf(self).rank());
}

PyObject* CommunicatorSize(PyObject* self, PyObject* /*none*/) {
  return PyLong_FromLong(HandleOf(self).size());
}

PyMethodDef communicator_methods[] = {
    {"run", Method(&CommunicatorRun), METH_FASTCALL, nullptr},
    {"allreduce", Method(&CommunicatorAllReduce), METH_FASTCALL | METH_KEYWORDS,
     nullptr},
    {"start", Method(&CommunicatorStart), METH_FASTCALL, nullptr},
    {"allocate", &CommunicatorAllocate, METH_O, nullptr},
    {"close", &CommunicatorClose, METH_NOARGS, nullptr},
    {"is_closed", &CommunicatorIsClosed, METH_NOARGS, nullptr},
    {"abort", &CommunicatorAbort, METH_O, nullptr},
    {"check", &CommunicatorCheck, METH_NOARGS, nullptr},
    {"rank", &CommunicatorRank, METH_NOARGS, nullptr},
    {"size", &CommunicatorSize, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot communicator_slots[] = {
    {Py_tp_new, Slot(&CommunicatorNew)},
    {Py_tp_dealloc, Slot(&CommunicatorDealloc)},
    {Py_tp_methods, communicator_methods},
    {0, nullptr},
};

PyType_Spec communicator_spec = {"ringpipe._native.Communicator",
                                 sizeof(CommunicatorObject), 0,
                                 Py_TPFLAGS_DEFAULT, communicator_slots};

PyTypeObject* AddType(PyObject* module, PyType_Spec* spec) {
  auto* const type = reinterpret_cast<PyTypeObject*>(
      PyType_FromModuleAndSpec(module, spec, nullptr));
  return type != nullptr && PyModule_AddType(module, type) == 0 ? type
                                                                : nullptr;
}

}  // namespace

bool AddTypes(PyObject* module) {
  request_type = AddType(module, &request_spec);
  memory_type = AddType(module, &memory_spec);
  return request_type != nullptr && memory_type != nullptr &&
         AddType(module, &communicator_spec) != nullptr;
}

}  // namespace ringpipe::python
