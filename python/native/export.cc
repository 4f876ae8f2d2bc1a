#include "python/native/export.h"

#include "python/native/elements.h"
#include "python/native/hooks.h"

namespace ringpipe::python {
namespace {

constexpr char kTensor[] = "__dlpack__";
constexpr char kCudaArray[] = "__cuda_array_interface__";

// As many as Python's buffers have: a number from memory that is no tensor may
// be any.
constexpr std::int32_t kMostDimensions = 64;

// Whether the shape is there, and no length is below 0.
bool CheckShape(const dlpack::Tensor& tensor) {
  if (tensor.dimensions < 0 || tensor.dimensions > kMostDimensions) {
    SetInvalid("its DLPack capsule has %d dimensions; ringpipe has 0 to %d",
               static_cast<int>(tensor.dimensions),
               static_cast<int>(kMostDimensions));
    return false;
  }
  if (tensor.dimensions > 0 && tensor.shape == nullptr) {
    SetInvalid("its DLPack capsule has %d dimensions, and its shape is null",
               static_cast<int>(tensor.dimensions));
    return false;
  }
  for (std::int32_t i = 0; i < tensor.dimensions; ++i) {
    if (tensor.shape[i] < 0) {
      SetInvalid(
          "its DLPack capsule has length %lld in dimension %d, which is below "
          "0",
          static_cast<long long>(tensor.shape[i]), static_cast<int>(i));
      return false;
    }
  }
  return true;
}

// How many elements there are: where one length is 0, none, however large the
// others.
bool CountElements(const dlpack::Tensor& tensor, std::size_t item_bytes,
                   std::size_t* count) {
  *count = 1;
  for (std::int32_t i = 0; i < tensor.dimensions; ++i) {
    if (tensor.shape[i] == 0) {
      *count = 0;
      return true;
    }
  }
  std::size_t bytes = item_bytes > 0 ? item_bytes : 1;
  for (std::int32_t i = 0; i < tensor.dimensions; ++i) {
    const auto length = static_cast<std::size_t>(tensor.shape[i]);
    if (__builtin_mul_overflow(bytes, length, &bytes) || bytes > PTRDIFF_MAX) {
      SetInvalid(
          "the lengths of its DLPack capsule make more bytes than memory can "
          "have");
      return false;
    }
    *count *= length;
  }
  return true;
}

// Of a tensor that has elements, which can be counted.
bool IsContiguous(const dlpack::Tensor& tensor) {
  if (tensor.strides == nullptr) {
    return true;
  }
  std::int64_t expected = 1;
  bool contiguous = true;
  for (std::int32_t i = tensor.dimensions; i-- > 0;) {
    contiguous =
        contiguous && (tensor.shape[i] == 1 || tensor.strides[i] == expected);
    expected *= tensor.shape[i];
  }
  return contiguous;
}

bool IsOfHost(const dlpack::Device& device) {
  return device.type == dlpack::kCpu || device.type == dlpack::kCudaHost;
}

bool IsOfCuda(const dlpack::Device& device) {
  return device.type == dlpack::kCuda || device.type == dlpack::kCudaManaged;
}

}  // namespace

bool Export::Has(PyObject* object) {
  return PyObject_HasAttrString(object, kTensor) != 0 ||
         PyObject_HasAttrString(object, kCudaArray) != 0;
}

bool Export::Hold(PyObject* object, bool writable, const CallStream& stream) {
  data_ = nullptr;
  tensor_ = nullptr;
  versioned_ = nullptr;
  owner_ = nullptr;
  stream_ = CallStream::kNone;
  if (hooks.export_tensor == nullptr) {
    return false;
  }
  return PyObject_HasAttrString(object, kTensor) != 0
             ? HoldTensor(object, writable, stream.ForExporters())
             : HoldCudaArray(object, writable, !stream.is_given());
}

bool Export::HoldTensor(PyObject* object, bool writable, long stream) {
  PyObject* const answer =
      PyObject_CallFunction(hooks.export_tensor, "OOl", object,
                            writable ? Py_True : Py_False, stream);
  if (answer == nullptr) {
    return false;
  }
  PyObject* capsule = nullptr;
  int on_device = 0;
  const bool taken =
      PyArg_ParseTuple(answer, "Oi", &capsule, &on_device) != 0 &&
      Take(capsule);
  Py_DECREF(answer);
  if (!taken) {
    return false;
  }
  if (!CheckVersion(writable) ||
      !Read(versioned_ != nullptr ? versioned_->tensor : tensor_->tensor,
            on_device != 0)) {
    Release();
    return false;
  }
  on_device_ = on_device != 0;
  if (on_device_ && count_ > 0 && stream > 0) {
    stream_ = stream;
  }
  return true;
}

// What is in the capsule is this one's from then on.
bool Export::Take(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor_versioned") != 0) {
    void* const tensor = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    if (PyCapsule_SetName(capsule, "used_dltensor_versioned") != 0) {
      return false;
    }
    versioned_ = static_cast<dlpack::VersionedTensor*>(tensor);
    return true;
  }
  void* const tensor = PyCapsule_GetPointer(capsule, "dltensor");
  if (tensor == nullptr || PyCapsule_SetName(capsule, "used_dltensor") != 0) {
    return false;
  }
  tensor_ = static_cast<dlpack::ManagedTensor*>(tensor);
  return true;
}

bool Export::CheckVersion(bool writable) const {
  using Versioned = dlpack::VersionedTensor;
  if (versioned_ == nullptr) {
    return true;
  }
  if (versioned_->major != Versioned::kMajor) {
    SetInvalid("it is exported by DLPack %u, and ringpipe has DLPack 1",
               versioned_->major);
    return false;
  }
  if (writable && (versioned_->flags & Versioned::kReadOnly) != 0) {
    SetInvalid("it is read-only, and the call writes it; pass a copy");
    return false;
  }
  if (writable && (versioned_->flags & Versioned::kIsCopied) != 0) {
    SetInvalid(
        "it exports a copy of its elements, where what the call writes would "
        "be lost; pass memory that can be exported as it is");
    return false;
  }
  return true;
}

bool Export::Read(const dlpack::Tensor& tensor, bool on_device) {
  if (on_device ? !IsOfCuda(tensor.device) : !IsOfHost(tensor.device)) {
    SetInvalid(
        "its DLPack capsule is memory of device type %d, and not what its "
        "__dlpack_device__ says",
        static_cast<int>(tensor.device.type));
    return false;
  }
  const std::size_t bits =
      static_cast<std::size_t>(tensor.type.bits) * tensor.type.lanes;
  item_bytes_ = bits % 8 == 0 ? bits / 8 : 0;  // 0: none that ringpipe has
  type_ = TypeOfTensor(tensor.type);
  if (!CheckShape(tensor) || !CountElements(tensor, item_bytes_, &count_)) {
    return false;
  }
  if (count_ > 0 && !IsContiguous(tensor)) {
    SetInvalid("its elements do not lie side by side; pass x.contiguous()");
    return false;
  }
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  const bool is_beyond =
      __builtin_add_overflow(reinterpret_cast<std::uintptr_t>(tensor.data),
                             tensor.byte_offset, &begin) ||
      __builtin_add_overflow(begin, count_ * item_bytes_, &end);
  if (is_beyond && count_ > 0) {
    SetInvalid(
        "its DLPack capsule begins %llu bytes behind address %p, and ends "
        "beyond the last address",
        static_cast<unsigned long long>(tensor.byte_offset), tensor.data);
    return false;
  }
  data_ = reinterpret_cast<void*>(begin);
  return true;
}

// The interface has no owner of the memory: that is the object itself.
bool Export::HoldCudaArray(PyObject* object, bool writable, bool asks_stream) {
  PyObject* const answer = PyObject_CallFunction(
      hooks.read_cuda_array, "OOO", object, writable ? Py_True : Py_False,
      asks_stream ? Py_True : Py_False);
  if (answer == nullptr) {
    return false;
  }
  unsigned long long address = 0;
  Py_ssize_t count = 0;
  Py_ssize_t item_bytes = 0;
  unsigned type = 0;
  const bool read = PyArg_ParseTuple(answer, "KnnIl", &address, &count,
                                     &item_bytes, &type, &stream_) != 0;
  Py_DECREF(answer);
  if (!read) {
    return false;
  }
  data_ = reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
  count_ = static_cast<std::size_t>(count);
  item_bytes_ = static_cast<std::size_t>(item_bytes);
  type_ = type;
  on_device_ = true;
  owner_ = Py_NewRef(object);
  return true;
}

void Export::Release() {
  WithExceptionAside([this] {
    if (versioned_ != nullptr) {
      if (versioned_->deleter != nullptr) {
        versioned_->deleter(versioned_);
      }
    } else if (tensor_ != nullptr) {
      if (tensor_->deleter != nullptr) {
        tensor_->deleter(tensor_);
      }
    } else {
      Py_XDECREF(owner_);
    }
  });
}

}  // namespace ringpipe::python
