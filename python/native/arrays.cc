#include "python/native/arrays.h"

#include <cstring>

#include "python/native/hooks.h"

namespace ringpipe::python {
namespace {

struct Element {
  const char* name;
  std::size_t bytes;
};
// By ringpipe_data_type.
constexpr Element kElements[] = {{"?", 0},       {"float32", 4}, {"float64", 8},
                                 {"int32", 4},   {"int64", 8},   {"int8", 1},
                                 {"uint8", 1},   {"uint32", 4},  {"uint64", 8},
                                 {"float16", 2}, {"bfloat16", 2}};
constexpr std::uint32_t kTypes = sizeof kElements / sizeof kElements[0];

std::uint32_t SignedType(std::size_t bytes) {
  return bytes == 4   ? RINGPIPE_INT32
         : bytes == 8 ? RINGPIPE_INT64
         : bytes == 1 ? RINGPIPE_INT8
                      : 0;
}

std::uint32_t UnsignedType(std::size_t bytes) {
  return bytes == 4   ? RINGPIPE_UINT32
         : bytes == 8 ? RINGPIPE_UINT64
         : bytes == 1 ? RINGPIPE_UINT8
                      : 0;
}

std::uint32_t FloatType(std::size_t bytes) {
  return bytes == 4   ? RINGPIPE_FLOAT32
         : bytes == 8 ? RINGPIPE_FLOAT64
         : bytes == 2 ? RINGPIPE_FLOAT16
                      : 0;
}

// Of a format of the module struct; 0 if ringpipe has no such type. Formats
// that say the byte order are of this machine's, which is little-endian.
std::uint32_t TypeOfFormat(const char* format, std::size_t bytes) {
  if (format == nullptr) {
    return RINGPIPE_UINT8;
  }
  if (*format == '@' || *format == '=' || *format == '<') {
    ++format;
  }
  if (format[0] == 0 || format[1] != 0) {
    return 0;
  }
  if (std::strchr("efd", *format) != nullptr) {
    return FloatType(bytes);
  }
  if (std::strchr("bhilqn", *format) != nullptr) {
    return SignedType(bytes);
  }
  if (std::strchr("BHILQN", *format) != nullptr) {
    return UnsignedType(bytes);
  }
  return 0;
}

std::uint32_t TypeOfTensor(const dlpack::DataType& type) {
  if (type.lanes != 1 || type.bits % 8 != 0) {
    return 0;
  }
  const std::size_t bytes = type.bits / 8;
  switch (type.code) {
    case dlpack::kInt:
      return SignedType(bytes);
    case dlpack::kUInt:
      return UnsignedType(bytes);
    case dlpack::kFloat:
      return FloatType(bytes);
    case dlpack::kBfloat:
      return bytes == 2 ? static_cast<std::uint32_t>(RINGPIPE_BFLOAT16) : 0;
    default:
      return 0;
  }
}

bool IsContiguous(const dlpack::Tensor& tensor) {
  if (tensor.strides == nullptr) {
    return true;
  }
  std::int64_t expected = 1;
  bool contiguous = true;
  for (std::int32_t i = tensor.dimensions; i-- > 0;) {
    if (tensor.shape[i] == 0) {
      return true;
    }
    contiguous =
        contiguous && (tensor.shape[i] == 1 || tensor.strides[i] == expected);
    expected *= tensor.shape[i];
  }
  return contiguous;
}

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
bool HasTensor(PyObject* object) {
  if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) {
    return false;
  }
  ExceptionAside without_buffer;
  if (PyObject_HasAttrString(object, "__dlpack__") == 0) {
    without_buffer.Restore();
    return false;
  }
  without_buffer.Drop();
  return true;
}

}  // namespace

const char* TypeName(std::uint32_t type) {
  return kElements[type < kTypes ? type : 0].name;
}

bool Array::Hold(PyObject* object, bool writable, std::uint32_t type) {
  tensor_ = nullptr;
  if (PyObject_GetBuffer(object, &view_,
                         PyBUF_FORMAT | PyBUF_C_CONTIGUOUS |
                             (writable ? PyBUF_WRITABLE : 0)) == 0) {
    data_ = view_.buf;
    item_bytes_ = static_cast<std::size_t>(view_.itemsize);
    count_ = item_bytes_ == 0
                 ? 0
                 : static_cast<std::size_t>(view_.len) / item_bytes_;
    type_ = TypeOfFormat(view_.format, item_bytes_);
  } else if (!HasTensor(object) || !HoldTensor(object)) {
    return Explain(object, writable);
  }
  if (type != 0 && !ReadAs(type)) {
    return false;
  }
  if (type_ == 0) {
    Release();
    return Explain(object, writable);
  }
  return true;
}

bool Array::HoldTensor(PyObject* object) {
  PyObject* const capsule = PyObject_CallMethod(object, "__dlpack__", nullptr);
  if (capsule == nullptr) {
    return false;
  }
  auto* const tensor = static_cast<dlpack::ManagedTensor*>(
      PyCapsule_GetPointer(capsule, "dltensor"));
  if (tensor == nullptr || PyCapsule_SetName(capsule, "used_dltensor") != 0) {
    Py_DECREF(capsule);
    return false;
  }
  Py_DECREF(capsule);
  tensor_ = tensor;
  if (!ReadTensor(tensor->tensor)) {
    Release();
    return false;
  }
  return true;
}

bool Array::ReadTensor(const dlpack::Tensor& tensor) {
  if (tensor.device.type != dlpack::kCpu &&
      tensor.device.type != dlpack::kCudaHost) {
    SetInvalid(
        "it is in the memory of a device; copy it to the host (x.cpu())");
    return false;
  }
  if (!IsContiguous(tensor)) {
    SetInvalid("its elements do not lie side by side; pass x.contiguous()");
    return false;
  }
  data_ = static_cast<char*>(tensor.data) + tensor.byte_offset;
  count_ = 1;
  for (std::int32_t i = 0; i < tensor.dimensions; ++i) {
    count_ *= static_cast<std::size_t>(tensor.shape[i]);
  }
  item_bytes_ = tensor.type.bits / 8;
  type_ = TypeOfTensor(tensor.type);
  return true;
}

// The elements are of that type, if they are as long.
bool Array::ReadAs(std::uint32_t type) {
  if (kElements[type].bytes != item_bytes_) {
    SetInvalid(
        "dtype is %s, which has %zu bytes, and the array's elements have %zu; "
        "pass x.view() of elements that long",
        kElements[type].name, kElements[type].bytes, item_bytes_);
    Release();
    return false;
  }
  type_ = type;
  return true;
}

void Array::Release() {
  ExceptionAside aside;  // either may run Python
  if (tensor_ == nullptr) {
    PyBuffer_Release(&view_);
  } else if (tensor_->deleter != nullptr) {
    tensor_->deleter(tensor_);
  }
  if (PyErr_Occurred() != nullptr) {
    PyErr_WriteUnraisable(nullptr);
  }
  aside.Restore();
}

bool Side::Hold(PyObject* object, bool writable, std::uint32_t type) {
  HoldNothing();
  if (PyList_Check(object) || PyTuple_Check(object)) {
    return HoldList(object, writable, type);
  }
  if (!one_.Hold(object, writable, type)) {
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

bool Side::HoldList(PyObject* list, bool writable, std::uint32_t type) {
  // Python code that runs meanwhile might change a list.
  PyObject* const items = PySequence_Tuple(list);
  if (items == nullptr) {
    return false;
  }
  const bool held = HoldPieces(items, writable, type);
  Py_DECREF(items);
  if (!held) {
    Release();
    HoldNothing();
  }
  return held;
}

bool Side::HoldPieces(PyObject* items, bool writable, std::uint32_t type) {
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
    if (!array.Hold(item, writable, type)) {
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
