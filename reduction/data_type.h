// Element types and reduction operations. To add one, add an enumerator here
// (with its size), a row in data_type.cc, and a kernel in host_reduction.cc and
// in cuda/.
#ifndef RINGPIPE_REDUCTION_DATA_TYPE_H_
#define RINGPIPE_REDUCTION_DATA_TYPE_H_

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace ringpipe {

// The numbers are part of the C interface and of the wire format: append only,
// from the first release on. None is 0, which is what a type is that nobody has
// set.
enum class DataType : int {
  kFloat32 = 1,
  kFloat64 = 2,
  kInt32 = 3,
  kInt64 = 4,
  kInt8 = 5,
  kUint8 = 6,
  kUint32 = 7,
  kUint64 = 8,
  kFloat16 = 9,    // IEEE 754's binary16
  kBfloat16 = 10,  // the upper half of a float32
};

// Integer sums and products wrap around (two's complement). kAverage is the sum
// divided by the number of ranks; for integers, the quotient is truncated
// toward zero. kMin and kMax of floating-point values give NaN if any rank has
// NaN. Values of 16 bits are computed as float32, and rounded to 16 bits after
// each step: each addition, each product, the division.
enum class ReduceOp : int {
  kSum = 0,
  kMin = 1,
  kMax = 2,
  kProd = 3,
  kAverage = 4,
};

inline constexpr std::array kDataTypes = {
    DataType::kFloat32, DataType::kFloat64, DataType::kInt32,
    DataType::kInt64,   DataType::kInt8,    DataType::kUint8,
    DataType::kUint32,  DataType::kUint64,  DataType::kFloat16,
    DataType::kBfloat16};
inline constexpr std::array kReduceOps = {ReduceOp::kSum, ReduceOp::kMin,
                                          ReduceOp::kMax, ReduceOp::kProd,
                                          ReduceOp::kAverage};

// The bytes of an element, a power of two; 0 for a value outside the
// enumeration.
constexpr std::size_t SizeOf(DataType type) {
  switch (type) {
    case DataType::kFloat64:
    case DataType::kInt64:
    case DataType::kUint64:
      return 8;
    case DataType::kFloat32:
    case DataType::kInt32:
    case DataType::kUint32:
      return 4;
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return 2;
    case DataType::kInt8:
    case DataType::kUint8:
      return 1;
  }
  return 0;
}

constexpr bool IsFloatingPoint(DataType type) {
  return type == DataType::kFloat32 || type == DataType::kFloat64 ||
         type == DataType::kFloat16 || type == DataType::kBfloat16;
}

// Whether it is in the enumeration.
constexpr bool Exists(ReduceOp op) {
  return op >= kReduceOps.front() && op <= kReduceOps.back();
}

// "float32", "average"; "unknown" for a value outside the enumeration.
std::string_view Name(DataType type);
std::string_view Name(ReduceOp op);

// From those names, or from those of nccl-tests ("float", "double", "avg").
std::optional<DataType> ParseDataType(std::string_view name);
std::optional<ReduceOp> ParseReduceOp(std::string_view name);

}  // namespace ringpipe

#endif  // RINGPIPE_REDUCTION_DATA_TYPE_H_
