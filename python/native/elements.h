#ifndef RINGPIPE_PYTHON_NATIVE_ELEMENTS_H_
#define RINGPIPE_PYTHON_NATIVE_ELEMENTS_H_

#include <cstddef>
#include <cstdint>

#include "python/native/dlpack.h"

namespace ringpipe::python {

// What an array's elements are, a ringpipe_data_type. 0: ringpipe has no such
// type.

// Of a format of the module struct, as a Py_buffer has it.
std::uint32_t TypeOfFormat(const char* format, std::size_t bytes);
std::uint32_t TypeOfTensor(const dlpack::DataType& type);

// "float32"; "?" if there is no such type.
const char* TypeName(std::uint32_t type);
// Of one element; 0 if there is no such type.
std::size_t TypeBytes(std::uint32_t type);

}  // namespace ringpipe::python

#endif  // RINGPIPE_PYTHON_NATIVE_ELEMENTS_H_
