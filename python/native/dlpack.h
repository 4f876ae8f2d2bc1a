// DLPack's structures, as an exporter's capsule has them: the part of dlpack.h
// that is needed here. A capsule "dltensor" has a ManagedTensor (DLPack 0.2 to
// 0.8), a capsule "dltensor_versioned" a VersionedTensor (from 1.0 on).
#ifndef RINGPIPE_PYTHON_NATIVE_DLPACK_H_
#define RINGPIPE_PYTHON_NATIVE_DLPACK_H_

#include <cstdint>

namespace ringpipe::python::dlpack {

enum DeviceType : std::int32_t {
  kCpu = 1,
  kCuda = 2,
  kCudaHost = 3,
  kCudaManaged = 13
};
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

// Whoever renames the capsule ("used_dltensor", "used_dltensor_versioned") owns
// what is in it, and calls the deleter once.
struct ManagedTensor {
  Tensor tensor;
  void* context;
  void (*deleter)(ManagedTensor* self);
};

// Of another major version than 1, only the deleter may be used.
struct VersionedTensor {
  static constexpr std::uint32_t kMajor = 1;
  static constexpr std::uint64_t kReadOnly = 1;
  static constexpr std::uint64_t kIsCopied = 2;

  std::uint32_t major;
  std::uint32_t minor;
  void* context;
  void (*deleter)(VersionedTensor* self);
  std::uint64_t flags;
  Tensor tensor;
};

static_assert(sizeof(Tensor) == 48 && sizeof(ManagedTensor) == 64);
static_assert(sizeof(VersionedTensor) == 80);

}  // namespace ringpipe::python::dlpack

#endif  // RINGPIPE_PYTHON_NATIVE_DLPACK_H_
