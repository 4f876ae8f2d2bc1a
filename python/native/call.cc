#include "python/native/call.h"

#include <cmath>
#include <cstring>

#include "python/native/elements.h"
#include "python/native/hooks.h"

namespace ringpipe::python {
namespace {

constexpr const char* kOps[] = {"sum", "min", "max", "prod", "average"};
constexpr std::uint32_t kOpCount = sizeof kOps / sizeof kOps[0];

// A small number from 0 up, such as a member of an IntEnum.
bool ReadNumber(PyObject* object, long below, const char* what,
                std::uint32_t* number) {
  const long value = PyLong_AsLong(object);
  if (value == -1 && PyErr_Occurred() != nullptr) {
    return false;
  }
  if (value < 0 || value >= below) {
    SetInvalid("%s is %ld, and there is no such thing", what, value);
    return false;
  }
  *number = static_cast<std::uint32_t>(value);
  return true;
}

bool ReadOp(PyObject* object, std::uint32_t* op) {
  if (PyUnicode_Check(object) == 0) {
    return ReadNumber(object, kOpCount, "op", op);
  }
  const char* const name = PyUnicode_AsUTF8AndSize(object, nullptr);
  if (name == nullptr) {
    return false;
  }
  for (*op = 0; *op < kOpCount; ++*op) {
    if (std::strcmp(name, kOps[*op]) == 0) {
      return true;
    }
  }
  SetInvalid(
      "op is \"%s\"; it is \"sum\", \"min\", \"max\", \"prod\" or \"average\"",
      name);
  return false;
}

bool ReadType(PyObject* object, std::uint32_t* type) {
  *type = 0;
  if (object == Py_None) {
    return true;
  }
  if (PyUnicode_Check(object) == 0) {
    return ReadNumber(object, RINGPIPE_BFLOAT16 + 1, "dtype", type);
  }
  const char* const name = PyUnicode_AsUTF8AndSize(object, nullptr);
  if (name == nullptr) {
    return false;
  }
  for (*type = RINGPIPE_FLOAT32; *type <= RINGPIPE_BFLOAT16; ++*type) {
    if (std::strcmp(name, TypeName(*type)) == 0) {
      return true;
    }
  }
  SetInvalid("dtype is \"%s\"; ringpipe.DataType lists those that there are",
             name);
  return false;
}

bool IsRooted(std::uint32_t collective) {
  return collective == RINGPIPE_BROADCAST || collective == RINGPIPE_REDUCE ||
         collective == RINGPIPE_GATHER || collective == RINGPIPE_SCATTER;
}

bool MayBeInPlace(std::uint32_t collective) {
  return collective == RINGPIPE_ALL_REDUCE || collective == RINGPIPE_REDUCE;
}

bool HasCounts(std::uint32_t collective) {
  return collective == RINGPIPE_REDUCE_SCATTER ||
         collective == RINGPIPE_ALL_GATHER || collective == RINGPIPE_GATHER ||
         collective == RINGPIPE_SCATTER;
}

// That `side` has so many elements.
bool Has(const Side& side, std::uint64_t elements, const char* name,
         const char* why) {
  if (side.is_nothing() || side.count() == elements) {
    return true;
  }
  SetInvalid("%s has %zu elements, and has to have %llu: %s", name,
             side.count(), static_cast<unsigned long long>(elements), why);
  return false;
}

}  // namespace

bool ReadTimeout(PyObject* seconds, std::int64_t* timeout_ms) {
  *timeout_ms = RINGPIPE_DEFAULT_TIMEOUT;
  if (seconds == Py_None) {
    return true;
  }
  const double value = PyFloat_AsDouble(seconds);
  if (value == -1.0 && PyErr_Occurred() != nullptr) {
    return false;
  }
  if (!(value >= 0)) {
    SetInvalid(
        "timeout is negative or not a number; give seconds, math.inf for "
        "no limit, or None for the default");
    return false;
  }
  const double ms = std::ceil(value * 1000);
  *timeout_ms = ms == 0      ? RINGPIPE_AT_ONCE
                : ms >= 1e15 ? RINGPIPE_NO_TIMEOUT
                             : static_cast<std::int64_t>(ms);
  return true;
}

void CallArguments::Clear() {
  counts_ = nullptr;
  stream_.Clear();
  send_.HoldNothing();
  receive_.HoldNothing();
  std::memset(&call_, 0, sizeof call_);
  call_.struct_size = sizeof call_;
}

bool CallArguments::Read(PyObject* const* arguments, Py_ssize_t number,
                         int rank, int size) {
  if (number != kNumber) {
    PyErr_Format(PyExc_TypeError, "%zd arguments given, of %s", number, kNames);
    return false;
  }
  Clear();
  std::uint32_t type = 0;
  return ReadNumbers(arguments) && ReadType(arguments[7], &type) &&
         stream_.Read(arguments[8]) && ReadCounts(arguments[5], size) &&
         Hold(arguments[1], arguments[2], type, rank, size);
}

bool CallArguments::ReadAllReduce(PyObject* x, PyObject* op, PyObject* out,
                                  PyObject* timeout, PyObject* dtype,
                                  PyObject* stream) {
  Clear();
  call_.collective = RINGPIPE_ALL_REDUCE;
  std::uint32_t type = 0;
  return (op == nullptr || ReadOp(op, &call_.reduce_op)) &&
         ReadTimeout(timeout, &call_.timeout_ms) && ReadType(dtype, &type) &&
         stream_.Read(stream) && Hold(x, out, type, /*rank=*/0, /*size=*/1);
}

// The arrays. What has been read before is freed if that fails.
bool CallArguments::Hold(PyObject* x, PyObject* out, std::uint32_t type,
                         int rank, int size) {
  const bool is_root = !IsRooted(call_.collective) || call_.root == rank;
  if (!HoldSides(x, out, type, is_root) || !SetCount(rank, size)) {
    Release();
    return false;
  }
  SetMemory();
  stream_.Set(call_);
  return true;
}

bool CallArguments::ReadNumbers(PyObject* const* arguments) {
  const long root = PyLong_AsLong(arguments[4]);
  if (root == -1 && PyErr_Occurred() != nullptr) {
    return false;
  }
  // The library says which ranks there are.
  call_.root =
      root >= 0 && root <= INT32_MAX ? static_cast<std::int32_t>(root) : -1;
  return ReadNumber(arguments[0], RINGPIPE_ALL_TO_ALL + 1, "collective",
                    &call_.collective) &&
         ReadOp(arguments[3], &call_.reduce_op) &&
         ReadTimeout(arguments[6], &call_.timeout_ms);
}

bool CallArguments::ReadCounts(PyObject* counts, int size) {
  if (counts == Py_None) {
    return true;
  }
  if (!HasCounts(call_.collective)) {
    SetInvalid("counts: all parts of this call are equally long");
    return false;
  }
  PyObject* const items = PySequence_Tuple(counts);
  if (items == nullptr) {
    return false;
  }
  const Py_ssize_t length = PyTuple_Size(items);
  bool done = length == size;
  if (!done) {
    SetInvalid("counts has %zd numbers; give one for each of the %d ranks",
               length, size);
  } else if (counts_ = static_cast<std::uint64_t*>(PyMem_Malloc(
                 static_cast<std::size_t>(length) * sizeof *counts_));
             counts_ == nullptr) {
    PyErr_NoMemory();
    done = false;
  }
  for (Py_ssize_t i = 0; done && i < length; ++i) {
    // An int, or a numpy integer.
    PyObject* const index = PyNumber_Index(PyTuple_GetItem(items, i));
    counts_[i] = index == nullptr ? 0 : PyLong_AsUnsignedLongLong(index);
    Py_XDECREF(index);
    done = PyErr_Occurred() == nullptr;
  }
  Py_DECREF(items);
  if (!done) {
    PyMem_Free(counts_);
    counts_ = nullptr;
  }
  call_.counts = counts_;
  call_.counts_length =
      counts_ == nullptr ? 0 : static_cast<std::uint64_t>(length);
  return done;
}

bool CallArguments::HoldSides(PyObject* x, PyObject* out, std::uint32_t type,
                              bool is_root) {
  const std::uint32_t collective = call_.collective;
  if (collective == RINGPIPE_BARRIER) {
    return true;
  }
  if (collective == RINGPIPE_BROADCAST) {
    // The root's may be read-only.
    if (!receive_.Hold(x, !is_root, type, stream_)) {
      return false;
    }
    if (is_root) {
      send_.Borrow(receive_);
    }
    return true;
  }
  const bool sends = collective != RINGPIPE_SCATTER || is_root;
  const bool receives = collective == RINGPIPE_SCATTER || is_root;
  const bool in_place = MayBeInPlace(collective) && receives && out == Py_None;
  if (sends && !send_.Hold(x, in_place, type, stream_)) {
    return false;
  }
  if (in_place) {
    receive_.Borrow(send_);
  } else if (receives && !receive_.Hold(out, true, type, stream_)) {
    return false;
  }
  if (sends && receives && send_.type() != receive_.type()) {
    SetInvalid("x is %s and out is %s; make both of one type",
               TypeName(send_.type()), TypeName(receive_.type()));
    return false;
  }
  return true;
}

// Of one part, where parts belong to ranks.
bool CallArguments::SetCount(int rank, int size) {
  const std::uint32_t type =
      send_.is_nothing() ? receive_.type() : send_.type();
  call_.data_type = type;
  const auto ranks = static_cast<std::uint64_t>(size);
  switch (call_.collective) {
    case RINGPIPE_BARRIER:
      return true;
    case RINGPIPE_ALL_REDUCE:
    case RINGPIPE_REDUCE:
      call_.count = send_.count();
      return Has(receive_, call_.count, "out", "as many as x");
    case RINGPIPE_BROADCAST:
      call_.count = receive_.count();
      return true;
    case RINGPIPE_ALL_TO_ALL:
      call_.count = send_.count() / ranks;
      return Has(send_, call_.count * ranks, "x",
                 "a part for each rank, all equally long") &&
             Has(receive_, send_.count(), "out", "as many as x");
    default:
      return SetParts(rank, size);
  }
}

// Of collectives in which one side has a part of each rank, and the other this
// rank's.
bool CallArguments::SetParts(int rank, int size) {
  const bool scatters = call_.collective == RINGPIPE_REDUCE_SCATTER ||
                        call_.collective == RINGPIPE_SCATTER;
  const Side& whole = scatters ? send_ : receive_;
  const Side& part = scatters ? receive_ : send_;
  const char* const whole_name = scatters ? "x" : "out";
  if (counts_ == nullptr) {
    call_.count = part.count();
    return Has(
        whole, call_.count * static_cast<std::uint64_t>(size), whole_name,
        scatters ? "size times as many as out" : "size times as many as x");
  }
  std::uint64_t all = 0;
  for (int i = 0; i < size; ++i) {
    all += counts_[i];
  }
  return Has(part, counts_[rank], scatters ? "out" : "x",
             "this rank's number in counts") &&
         Has(whole, all, whole_name, "the sum of counts");
}

void CallArguments::SetMemory() {
  if (send_.is_list()) {
    call_.send_list = send_.pieces();
    call_.send_list_length = send_.length();
  } else {
    call_.send = send_.data();
  }
  if (receive_.is_list()) {
    call_.receive_list = receive_.pieces();
    call_.receive_list_length = receive_.length();
  } else {
    call_.receive = receive_.data();
  }
}

void CallArguments::Release() {
  // What receive_ has may be send_'s, or the other way round.
  receive_.Release();
  send_.Release();
  PyMem_Free(counts_);
  counts_ = nullptr;
}

}  // namespace ringpipe::python
