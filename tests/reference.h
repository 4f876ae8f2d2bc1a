// Inputs and expected results of collectives, computed without ringpipe.
#ifndef RINGPIPE_TESTS_REFERENCE_H_
#define RINGPIPE_TESTS_REFERENCE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "reduction/data_type.h"

namespace ringpipe::testing {

// Small integers (so that every order of floating-point additions is exact)
// that differ by rank and index. Never 0, so that a lost contribution shows.
template <typename T>
T InputValue(int rank, std::size_t index, ReduceOp op) {
  const std::uint32_t hash =
      (static_cast<std::uint32_t>(index) * 2654435761U + rank * 40503U) >> 24;
  if (op == ReduceOp::kProd) {
    return static_cast<T>(1 + hash % 2);  // 2^16 at most: exact, or wraps
  }
  return static_cast<T>(1 + hash % 7);
}

// OP over `size` ranks of InputValue.
template <typename T>
T ExpectedValue(int size, std::size_t index, ReduceOp op) {
  T result = InputValue<T>(0, index, op);
  for (int rank = 1; rank < size; ++rank) {
    const T value = InputValue<T>(rank, index, op);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAverage:
        result = static_cast<T>(result + value);
        break;
      case ReduceOp::kMin:
        result = std::min(result, value);
        break;
      case ReduceOp::kMax:
        result = std::max(result, value);
        break;
      case ReduceOp::kProd:
        result = static_cast<T>(result * value);
        break;
    }
  }
  return op == ReduceOp::kAverage
             ? static_cast<T>(result / static_cast<T>(size))
             : result;
}

// The elements [begin, begin + count) of rank's input, and of the reduction of
// `size` ranks' inputs.
template <typename T>
std::vector<T> Inputs(int rank, std::size_t begin, std::size_t count,
                      ReduceOp op) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = InputValue<T>(rank, begin + i, op);
  }
  return values;
}

template <typename T>
std::vector<T> Results(int size, std::size_t begin, std::size_t count,
                       ReduceOp op) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = ExpectedValue<T>(size, begin + i, op);
  }
  return values;
}

// What a result's memory holds beforehand: no value that is expected.
template <typename T>
std::vector<T> Poisoned(std::size_t count) {
  T poison;
  std::memset(&poison, 0xA5, sizeof poison);
  return std::vector<T>(count, poison);
}

// The DataType of T, and a call of `function.operator()<T>()` for a DataType.
template <typename Function>
auto WithType(DataType type, Function function) {
  switch (type) {
    case DataType::kFloat32:
      return function.template operator()<float>();
    case DataType::kFloat64:
      return function.template operator()<double>();
    case DataType::kInt32:
      return function.template operator()<std::int32_t>();
    case DataType::kInt64:
      return function.template operator()<std::int64_t>();
    case DataType::kInt8:
      return function.template operator()<std::int8_t>();
    case DataType::kUint8:
      return function.template operator()<std::uint8_t>();
  }
  std::abort();
}

}  // namespace ringpipe::testing

#endif  // RINGPIPE_TESTS_REFERENCE_H_
