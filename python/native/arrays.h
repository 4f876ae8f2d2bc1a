#ifndef RINGPIPE_PYTHON_NATIVE_ARRAYS_H_
#define RINGPIPE_PYTHON_NATIVE_ARRAYS_H_

#include <cstddef>
#include <cstdint>

#include "python/native/call_stream.h"
#include "python/native/export.h"
#include "python/native/python.h"
// After Python.h.
#include "engine/ringpipe.h"

namespace ringpipe::python {

// Every function here is called with the GIL.

// The memory of one array, held by the buffer protocol, by DLPack or by
// __cuda_array_interface__. Lies where Hold found it: exporters keep pointers
// into it.
class Array {
 public:
  // Holds `object`'s memory until Release. `type` is a ringpipe_data_type by
  // which the elements are read whatever the array calls them, or 0. `stream`
  // learns what the call has to wait for. False, with an exception that says
  // what to do, if that cannot be; nothing is held then.
  bool Hold(PyObject* object, bool writable, std::uint32_t type,
            CallStream& stream);
  void Release();

  void* data() const { return data_; }
  std::size_t count() const { return count_; }
  std::uint32_t type() const { return type_; }

 private:
  bool HoldExport(PyObject* object, bool writable, const CallStream& stream);
  bool ReadAs(std::uint32_t type);

  void* data_;
  std::size_t count_;
  std::size_t item_bytes_;
  std::uint32_t type_;
  bool is_export_;
  Export export_;   // either this
  Py_buffer view_;  // or this
};

// What a call reads, or writes: an array, a list of them, or nothing.
class Side {
 public:
  bool Hold(PyObject* object, bool writable, std::uint32_t type,
            CallStream& stream);
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
  bool HoldList(PyObject* list, bool writable, std::uint32_t type,
                CallStream& stream);
  bool HoldPieces(PyObject* items, bool writable, std::uint32_t type,
                  CallStream& stream);

  void* data_;
  std::size_t count_;
  std::uint32_t type_;  // 0: nothing
  bool borrowed_;
  ringpipe_buffer* pieces_;
  Array* arrays_;
  std::size_t length_;
  Array one_;
};

}  // namespace ringpipe::python

#endif  // RINGPIPE_PYTHON_NATIVE_ARRAYS_H_
