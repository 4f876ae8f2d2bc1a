// DLPack's structures, as an exporter's capsule "dltensor" has them: the part
// of dlpack.h that is needed here (DLPack 0.2 to 1.0, unversioned).
#ifndef RINGPIPE_PYTHON_NATIVE_DLPACK_H_
#define RINGPIPE_PYTHON_NATIVE_DLPACK_H_

#include <cstdint>

namespace ringpipe::python::dlpack {

enum DeviceType : std::int32_t { kCpu = 1, kCuda = 2, kCudaHost = 3 };
enum TypeCode : std::uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4 };

struct Device {
  std::int32_t type;
  std::int32_t id;
};

struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t dimensions;
  DataType type;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; nullptr: contiguous
  std::uint64_t byte_offset;
};

// Whoever renames the capsule to "used_dltensor" owns this, and calls the
// deleter once.
struct ManagedTensor {
  Tensor tensor;
  void* context;
  void (*deleter)(ManagedTensor* self);
};

static_assert(sizeof(Tensor) == 48 && sizeof(ManagedTensor) == 64);

}  // namespace ringpipe::python::dlpack

#endif  // RINGPIPE_PYTHON_NATIVE_DLPACK_H_
