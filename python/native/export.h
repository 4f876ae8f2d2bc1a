#ifndef RINGPIPE_PYTHON_NATIVE_EXPORT_H_
#define RINGPIPE_PYTHON_NATIVE_EXPORT_H_

#include <cstddef>
#include <cstdint>

#include "python/native/call_stream.h"
#include "python/native/dlpack.h"
#include "python/native/python.h"

namespace ringpipe::python {

// Memory, of the host or of a CUDA device, that another library's array gives
// by DLPack or by __cuda_array_interface__. With the GIL.
class Export {
 public:
  // Whether `object` has one of them. No exception is set afterwards.
  static bool Has(PyObject* object);

  // Holds `object`'s memory until Release. False, with an exception that begins
  // with "it", if the call cannot use it; nothing is held then.
  bool Hold(PyObject* object, bool writable, const CallStream& stream);
  // May run any code.
  void Release();

  void* data() const { return data_; }
  std::size_t count() const { return count_; }
  std::size_t item_bytes() const { return item_bytes_; }
  std::uint32_t type() const { return type_; }
  bool on_device() const { return on_device_; }
  // After whose work the elements are ready; CallStream::kNone: they are.
  long stream() const { return stream_; }

 private:
  bool HoldTensor(PyObject* object, bool writable, long stream);
  bool Take(PyObject* capsule);
  bool HoldCudaArray(PyObject* object, bool writable, bool asks_stream);
  bool CheckVersion(bool writable) const;
  bool Read(const dlpack::Tensor& tensor, bool on_device);

  void* data_;
  std::size_t count_;
  std::size_t item_bytes_;
  std::uint32_t type_;
  bool on_device_;
  long stream_;
  // One of them holds the memory.
  dlpack::ManagedTensor* tensor_;
  dlpack::VersionedTensor* versioned_;
  PyObject* owner_;
};

}  // namespace ringpipe::python

#endif  // RINGPIPE_PYTHON_NATIVE_EXPORT_H_
