#include "python/native/arrays.h"

#include "python/native/elements.h"
#include "python/native/hooks.h"

namespace ringpipe::python {
namespace {

// Has Python say why `object` cannot be used, whatever exception is set.
bool Explain(PyObject* object, bool writable) {
  PyObject* type = nullptr;
  PyObject* cause = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &cause, &traceback);
  PyErr_NormalizeException(&type, &cause, &traceback);
  PyObject* const none =
      hooks.explain == nullptr
          ? nullptr
          : PyObject_CallFunctionObjArgs(
                hooks.explain, object, writable ? Py_True : Py_False,
                cause != nullptr ? cause : Py_None, nullptr);
  if (none != nullptr || PyErr_Occurred() == nullptr) {
    PyErr_SetString(PyExc_TypeError, "this array cannot be used in a call");
  }
  Py_XDECREF(none);
  Py_XDECREF(type);
  Py_XDECREF(cause);
  Py_XDECREF(traceback);
  return false;
}

// After it had no buffer, whose exception is then dropped.
bool HasExport(PyObject* object) {
  // Of some, those on a device say that the host cannot read them.
  if (PyErr_ExceptionMatches(PyExc_TypeError) == 0 &&
      PyErr_ExceptionMatches(PyExc_BufferError) == 0) {
    return false;
  }
  ExceptionAside without_buffer;
  if (!Export::Has(object)) {
    without_buffer.Restore();
    return false;
  }
  without_buffer.Drop();
  return true;
}

}  // namespace

bool Array::Hold(PyObject* object, bool writable, std::uint32_t type,
                 CallStream& stream) {
  is_export_ = false;
  if (PyObject_GetBuffer(object, &view_,
                         PyBUF_FORMAT | PyBUF_C_CONTIGUOUS |
                             (writable ? PyBUF_WRITABLE : 0)) == 0) {
    data_ = view_.buf;
    item_bytes_ = static_cast<std::size_t>(view_.itemsize);
    count_ = item_bytes_ == 0
                 ? 0
                 : static_cast<std::size_t>(view_.len) / item_bytes_;
    type_ = TypeOfFormat(view_.format, item_bytes_);
  } else {
    const bool refuses = PyErr_ExceptionMatches(PyExc_BufferError) != 0;
    if (!HasExport(object) || !HoldExport(object, writable, stream)) {
      return Explain(object, writable);
    }
    // Not every library's DLPack says what its buffers say.
    if (refuses && writable && !export_.on_device()) {
      Release();
      SetInvalid("its buffer refuses to be written; pass a copy");
      return Explain(object, writable);
    }
  }
  if (type_ == 0 && type == 0) {
    Release();
    return Explain(object, writable);
  }
  if ((type != 0 && !ReadAs(type)) ||
      (is_export_ && !stream.Add(export_.stream()))) {
    Release();
    return false;
  }
  return true;
}

bool Array::HoldExport(PyObject* object, bool writable,
                       const CallStream& stream) {
  is_export_ = true;
  if (!export_.Hold(object, writable, stream)) {
    return false;
  }
  data_ = export_.data();
  count_ = export_.count();
  item_bytes_ = export_.item_bytes();
  type_ = export_.type();
  return true;
}

// The elements are of that type, if they are as long.
bool Array::ReadAs(std::uint32_t type) {
  if (TypeBytes(type) != item_bytes_) {
    SetInvalid(
        "dtype is %s, which has %zu bytes, and the array's elements have %zu; "
        "pass x.view() of elements that long",
        TypeName(type), TypeBytes(type), item_bytes_);
    return false;
  }
  type_ = type;
  return true;
}

void Array::Release() {
  if (is_export_) {
    export_.Release();
  } else {
    WithExceptionAside([this] { PyBuffer_Release(&view_); });
  }
}

bool Side::Hold(PyObject* object, bool writable, std::uint32_t type,
                CallStream& stream) {
  HoldNothing();
  if (PyList_Check(object) || PyTuple_Check(object)) {
    return HoldList(object, writable, type, stream);
  }
  if (!one_.Hold(object, writable, type, stream)) {
    return false;
  }
  data_ = one_.data();
  count_ = one_.count();
  type_ = one_.type();
  return true;
}

void Side::HoldNothing() {
  data_ = nullptr;
  count_ = 0;
  type_ = 0;
  borrowed_ = false;
  pieces_ = nullptr;
  arrays_ = nullptr;
  length_ = 0;
}

void Side::Borrow(const Side& other) {
  data_ = other.data_;
  count_ = other.count_;
  type_ = other.type_;
  borrowed_ = true;
  pieces_ = other.pieces_;
  arrays_ = nullptr;
  length_ = other.length_;
}

bool Side::HoldList(PyObject* list, bool writable, std::uint32_t type,
                    CallStream& stream) {
  // Python code that runs meanwhile might change a list.
  PyObject* const items = PySequence_Tuple(list);
  if (items == nullptr) {
    return false;
  }
  const bool held = HoldPieces(items, writable, type, stream);
  Py_DECREF(items);
  if (!held) {
    Release();
    HoldNothing();
  }
  return held;
}

bool Side::HoldPieces(PyObject* items, bool writable, std::uint32_t type,
                      CallStream& stream) {
  const auto length = static_cast<std::size_t>(PyTuple_Size(items));
  if (length == 0) {
    SetInvalid(
        "the list of arrays is empty; pass at least one array, which may have "
        "no elements");
    return false;
  }
  pieces_ = static_cast<ringpipe_buffer*>(
      PyMem_Malloc(length * sizeof(ringpipe_buffer)));
  arrays_ = static_cast<Array*>(PyMem_Malloc(length * sizeof(Array)));
  if (pieces_ == nullptr || arrays_ == nullptr) {
    PyErr_NoMemory();
    return false;
  }
  for (; length_ < length; ++length_) {
    Array& array = arrays_[length_];
    PyObject* const item =
        PyTuple_GetItem(items, static_cast<Py_ssize_t>(length_));
    if (!array.Hold(item, writable, type, stream)) {
      return false;
    }
    if (length_ > 0 && array.type() != type_) {
      SetInvalid(
          "the arrays of a list are of one type, but number 0 is %s and number "
          "%zu is %s; convert them with x.astype(...)",
          TypeName(type_), length_, TypeName(array.type()));
      array.Release();
      return false;
    }
    pieces_[length_] = {array.data(), array.count()};
    type_ = array.type();
    count_ += array.count();
  }
  return true;
}

void Side::Release() {
  if (borrowed_) {
    return;
  }
  if (arrays_ != nullptr) {
    for (std::size_t i = 0; i < length_; ++i) {
      arrays_[i].Release();
    }
  } else if (pieces_ == nullptr && type_ != 0) {
    one_.Release();
  }
  PyMem_Free(arrays_);
  PyMem_Free(pieces_);
  arrays_ = nullptr;
  pieces_ = nullptr;
  type_ = 0;
}

}  // namespace ringpipe::python
