// Element types and reduction operations. To add one, add an enumerator here, a
// row in data_type.cc, and a kernel in host_reduction.cc and in cuda/.
#ifndef RINGPIPE_REDUCTION_DATA_TYPE_H_
#define RINGPIPE_REDUCTION_DATA_TYPE_H_

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace ringpipe {

// The numbers are part of the C interface and of the wire format: append only.
enum class DataType : int {
  kFloat32 = 0,
  kFloat64 = 1,
  kInt32 = 2,
  kInt64 = 3,
  kInt8 = 4,
  kUint8 = 5,
};

// Integer sums and products wrap around (two's complement). kAverage is the sum
// divided by the number of ranks; for integers, the quotient is truncated
// toward zero. kMin and kMax of floating-point values give NaN if any rank has
// NaN.
enum class ReduceOp : int {
  kSum = 0,
  kMin = 1,
  kMax = 2,
  kProd = 3,
  kAverage = 4,
};

inline constexpr std::array kDataTypes = {
    DataType::kFloat32, DataType::kFloat64, DataType::kInt32,
    DataType::kInt64,   DataType::kInt8,    DataType::kUint8};
inline constexpr std::array kReduceOps = {ReduceOp::kSum, ReduceOp::kMin,
                                          ReduceOp::kMax, ReduceOp::kProd,
                                          ReduceOp::kAverage};

// The bytes of an element; 0 for a value outside the enumeration.
std::size_t SizeOf(DataType type);

// "float32", "average"; "unknown" for a value outside the enumeration.
std::string_view Name(DataType type);
std::string_view Name(ReduceOp op);

// From those names, or from those of nccl-tests ("float", "double", "avg").
std::optional<DataType> ParseDataType(std::string_view name);
std::optional<ReduceOp> ParseReduceOp(std::string_view name);

}  // namespace ringpipe

#endif  // RINGPIPE_REDUCTION_DATA_TYPE_H_
