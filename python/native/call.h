#ifndef RINGPIPE_PYTHON_NATIVE_CALL_H_
#define RINGPIPE_PYTHON_NATIVE_CALL_H_

#include <cstdint>

#include "python/native/arrays.h"
#include "python/native/python.h"
// After Python.h.
#include "engine/ringpipe.h"

namespace ringpipe::python {

// Of seconds, or None, which is ringpipe's default. False, with an exception,
// if it is neither.
bool ReadTimeout(PyObject* seconds, std::int64_t* timeout_ms);

// A call as Python makes it, and the memory that it holds. Lies where Read
// found it. With the GIL.
class CallArguments {
 public:
  // What `run` and `start` take.
  static constexpr Py_ssize_t kNumber = 9;
  static constexpr char kNames[] =
      "(collective, x, out, op, root, counts, timeout, dtype, stream)";

  // Holds the memory and fills in call(). False, with an exception, if the
  // arguments are wrong; nothing is held then.
  bool Read(PyObject* const* arguments, Py_ssize_t number, int rank, int size);
  // The same of an allreduce, whose arguments the ranks need not be known for.
  // `op` may be nullptr: sum.
  bool ReadAllReduce(PyObject* x, PyObject* op, PyObject* out,
                     PyObject* timeout, PyObject* dtype, PyObject* stream);
  // Gives the memory back. Not for a call that ended with kMemoryHeld: what it
  // holds is then never freed.
  void Release();

  ringpipe_call& call() { return call_; }

 private:
  void Clear();
  bool Hold(PyObject* x, PyObject* out, std::uint32_t type, int rank, int size);
  bool ReadNumbers(PyObject* const* arguments);
  bool ReadCounts(PyObject* counts, int size);
  bool HoldSides(PyObject* x, PyObject* out, std::uint32_t type, bool is_root);
  bool SetCount(int rank, int size);
  bool SetParts(int rank, int size);
  void SetMemory();

  CallStream stream_;
  Side send_;
  Side receive_;
  std::uint64_t* counts_;
  ringpipe_call call_;
};

}  // namespace ringpipe::python

#endif  // RINGPIPE_PYTHON_NATIVE_CALL_H_
