#ifndef RINGPIPE_PYTHON_NATIVE_CALL_STREAM_H_
#define RINGPIPE_PYTHON_NATIVE_CALL_STREAM_H_

#include "python/native/python.h"
// After Python.h.
#include "engine/ringpipe.h"

namespace ringpipe::python {

// The CUDA stream after whose work a call begins. Streams are numbers here, as
// DLPack and __cuda_array_interface__ have them: 1 is the legacy default
// stream, 2 the calling thread's, others are handles. With the GIL.
class CallStream {
 public:
  static constexpr long kNone = 0;
  static constexpr long kLegacy = 1;

  void Clear();
  // The keyword `stream`: a number; -1, nothing is waited for; or None, then
  // the arrays say it. False with an exception.
  bool Read(PyObject* stream);
  bool is_given() const { return is_given_; }
  // What exporters of DLPack are given: they make this stream wait for what
  // they have under way. -1: they need not.
  long ForExporters() const;
  // An array's elements are ready after what `stream` was given. False, with an
  // exception, if another array has said another stream: a call has one.
  bool Add(long stream);
  void Set(ringpipe_call& call) const;

 private:
  bool is_given_;  // by the keyword, which is the user's word for all arrays
  long number_;
};

}  // namespace ringpipe::python

#endif  // RINGPIPE_PYTHON_NATIVE_CALL_STREAM_H_
