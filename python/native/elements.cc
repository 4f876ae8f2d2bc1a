#include "python/native/elements.h"

#include "python/native/python.h"
// After Python.h.
#include "engine/ringpipe.h"

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

}  // namespace

// Formats that say the byte order are of this machine's, which is
// little-endian.
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
  switch (*format) {
    case 'e':
    case 'f':
    case 'd':
      return FloatType(bytes);
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
    case 'n':
      return SignedType(bytes);
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
    case 'N':
      return UnsignedType(bytes);
    default:
      return 0;
  }
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

const char* TypeName(std::uint32_t type) {
  return kElements[type < kTypes ? type : 0].name;
}

std::size_t TypeBytes(std::uint32_t type) {
  return kElements[type < kTypes ? type : 0].bytes;
}

}  // namespace ringpipe::python
