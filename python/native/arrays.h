#ifndef RINGPIPE_PYTHON_NATIVE_ARRAYS_H_
#define RINGPIPE_PYTHON_NATIVE_ARRAYS_H_

#include <cstddef>
#include <cstdint>

#include "python/native/python.h"
// After Python.h.
#include "engine/ringpipe.h"
#include "python/native/dlpack.h"

namespace ringpipe::python {

// Every function here is called with the GIL.

// The memory of one array, held by the buffer protocol or by DLPack. Lies where
// Hold found it: exporters keep pointers into it.
class Array {
 public:
  // Holds `object`'s memory until Release. `type` is a ringpipe_data_type by
  // which the elements are read whatever the array calls them, or 0. False,
  // with an exception that says what to do, if that cannot be; nothing is held
  // then.
  bool Hold(PyObject* object, bool writable, std::uint32_t type);
  void Release();

  void* data() const { return data_; }
  std::size_t count() const { return count_; }
  std::uint32_t type() const { return type_; }

 private:
  bool HoldTensor(PyObject* object);
  bool ReadTensor(const dlpack::Tensor& tensor);
  bool ReadAs(std::uint32_t type);

  void* data_;
  std::size_t count_;
  std::size_t item_bytes_;
  std::uint32_t type_;
  dlpack::ManagedTensor* tensor_;  // nullptr: view_
  Py_buffer view_;
};

// What a call reads, or writes: an array, a list of them, or nothing.
class Side {
 public:
  bool Hold(PyObject* object, bool writable, std::uint32_t type);
  // The other side's memory: the call is in place.
  void Borrow(const Side& other);
  void HoldNothing();
  void Release();

  bool is_nothing() const { return type_ == 0; }
  bool is_list() const { return pieces_ != nullptr; }
  void* data() const { return data_; }
  const ringpipe_buffer* pieces() const { return pieces_; }
  std::size_t length() const { return length_; }  // of the list
  std::size_t count() const { return count_; }    // of all elements
  std::uint32_t type() const { return type_; }

 private:
  bool HoldList(PyObject* list, bool writable, std::uint32_t type);
  bool HoldPieces(PyObject* items, bool writable, std::uint32_t type);

  void* data_;
  std::size_t count_;
  std::uint32_t type_;  // 0: nothing
  bool borrowed_;
  ringpipe_buffer* pieces_;
  Array* arrays_;
  std::size_t length_;
  Array one_;
};

// "float32"; "?" if there is no such type.
const char* TypeName(std::uint32_t type);

}  // namespace ringpipe::python

#endif  // RINGPIPE_PYTHON_NATIVE_ARRAYS_H_
