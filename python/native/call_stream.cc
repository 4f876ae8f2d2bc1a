#include "python/native/call_stream.h"

#include <cstdint>

#include "python/native/hooks.h"

namespace ringpipe::python {

namespace {

// The keyword's word for kNone.
constexpr long kReady = -1;

}  // namespace

void CallStream::Clear() {
  is_given_ = false;
  number_ = kNone;
}

bool CallStream::Read(PyObject* stream) {
  if (stream == Py_None) {
    return true;
  }
  PyObject* const index = PyNumber_Index(stream);
  if (index == nullptr) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) != 0) {
      ExceptionAside no_number;
      no_number.Drop();
      PyErr_Format(PyExc_TypeError,
                   "stream is %R; pass the number of a CUDA stream, such as "
                   "PyTorch's stream.cuda_stream or CuPy's stream.ptr",
                   stream);
    }
    return false;
  }
  const long number = PyLong_AsLong(index);
  Py_DECREF(index);
  if (number == kReady && PyErr_Occurred() != nullptr) {
    return false;
  }
  if (number == 0) {
    SetInvalid(
        "stream is 0, which may be either default stream: pass 1 for the "
        "legacy one, which is PyTorch's and CuPy's, or 2 for the thread's");
    return false;
  }
  if (number < kReady) {
    SetInvalid(
        "stream is %ld; pass the number of a CUDA stream, or -1 to wait for "
        "none",
        number);
    return false;
  }
  is_given_ = true;
  number_ = number == kReady ? kNone : number;
  return true;
}

long CallStream::ForExporters() const {
  if (!is_given_) {
    return kLegacy;
  }
  return number_ == kNone ? kReady : number_;
}

bool CallStream::Add(long stream) {
  if (is_given_ || stream == kNone || stream == number_) {
    return true;
  }
  if (number_ != kNone) {
    SetInvalid(
        "one array is ready after the work of CUDA stream %ld, and another "
        "after that of %ld, but a call waits for one stream: let one of them "
        "wait for the other (an event), and pass its number as stream=",
        number_, stream);
    return false;
  }
  number_ = stream;
  return true;
}

void CallStream::Set(ringpipe_call& call) const {
  call.has_stream = number_ == kNone ? 0 : 1;
  call.stream = reinterpret_cast<void*>(static_cast<std::uintptr_t>(number_));
}

}  // namespace ringpipe::python
