// Inputs and expected results of collectives, computed without ringpipe.
#ifndef RINGPIPE_TESTS_REFERENCE_H_
#define RINGPIPE_TESTS_REFERENCE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "engine/call.h"
#include "reduction/data_type.h"
#include "reduction/narrow_float.h"

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

// Where a rank's part of a message is in the whole.
struct Part {
  std::size_t first = 0;
  std::size_t count = 0;
};
inline Part PartOf(const Call& call, int rank) {
  if (call.counts.empty()) {
    return {rank * call.count, call.count};
  }
  Part part = {0, call.counts[rank]};
  for (int before = 0; before < rank; ++before) {
    part.first += call.counts[before];
  }
  return part;
}

// What each rank gives that has a part, one after the other.
template <typename T>
std::vector<T> PartsOfAll(const Call& call, int size) {
  std::vector<T> all;
  for (int rank = 0; rank < size; ++rank) {
    const auto part = Inputs<T>(rank, 0, PartOf(call, rank).count, call.op);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

// What each rank gives to this one in an all-to-all.
template <typename T>
std::vector<T> PartsFor(const Call& call, int receiver, int size) {
  const auto [first, count] = PartOf(call, receiver);
  std::vector<T> all;
  for (int rank = 0; rank < size; ++rank) {
    const auto part = Inputs<T>(rank, first, count, call.op);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

// What a rank gives to a call, of which the buffers do not count, and what it
// is to get; empty where that is nothing.
template <typename T>
std::vector<T> InputOf(const Call& call, int rank, int size) {
  const bool is_root = rank == call.root;
  const std::size_t own = PartOf(call, rank).count;
  const std::size_t all =
      PartOf(call, size - 1).first + PartOf(call, size - 1).count;
  switch (call.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kAllGather:
    case Collective::kGather:
      return Inputs<T>(rank, 0, own, call.op);
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return Inputs<T>(rank, 0, all, call.op);
    case Collective::kBroadcast:
      return Inputs<T>(rank, 0, is_root ? call.count : 0, call.op);
    case Collective::kScatter:
      return Inputs<T>(rank, 0, is_root ? all : 0, call.op);
    case Collective::kSendReceive:
      return Inputs<T>(rank, 0,
                       call.partners.to == Partners::kNone ? 0 : call.count,
                       call.op);
    case Collective::kBarrier:
      break;
  }
  return {};
}

template <typename T>
std::vector<T> OutputOf(const Call& call, int rank, int size) {
  const bool is_root = rank == call.root;
  const auto [first, count] = PartOf(call, rank);
  switch (call.collective) {
    case Collective::kAllReduce:
      return Results<T>(size, 0, call.count, call.op);
    case Collective::kReduce:
      return Results<T>(size, 0, is_root ? call.count : 0, call.op);
    case Collective::kReduceScatter:
      return Results<T>(size, first, count, call.op);
    case Collective::kAllGather:
      return PartsOfAll<T>(call, size);
    case Collective::kGather:
      return is_root ? PartsOfAll<T>(call, size) : std::vector<T>();
    case Collective::kBroadcast:
      return Inputs<T>(call.root, 0, call.count, call.op);
    case Collective::kScatter:
      return Inputs<T>(call.root, first, count, call.op);
    case Collective::kAllToAll:
      return PartsFor<T>(call, rank, size);
    case Collective::kSendReceive:
      return Inputs<T>(call.partners.from, 0,
                       call.partners.from == Partners::kNone ? 0 : call.count,
                       call.op);
    case Collective::kBarrier:
      break;
  }
  return {};
}

// Where a rank's input and output lie in memory that they share, in elements.
struct InPlace {
  std::size_t input = 0;
  std::size_t output = 0;
};
inline InPlace InPlaceOf(Collective collective, std::size_t part) {
  switch (collective) {
    case Collective::kReduceScatter:
    case Collective::kScatter:
      return {.output = part};
    case Collective::kAllGather:
    case Collective::kGather:
      return {.input = part};
    default:
      return {};
  }
}

// What a result's memory holds beforehand: no value that is expected.
template <typename T>
std::vector<T> Poisoned(std::size_t count) {
  T poison;
  std::memset(static_cast<void*>(&poison), 0xA5, sizeof poison);
  return std::vector<T>(count, poison);
}

// What the memory of a call in place holds beforehand: the input, and poison
// where only the result, of `received` elements, lies.
template <typename T>
std::vector<T> InPlaceValues(const std::vector<T>& input, const InPlace& at,
                             std::size_t received) {
  auto values =
      Poisoned<T>(std::max(at.input + input.size(), at.output + received));
  std::copy(input.begin(), input.end(), values.data() + at.input);
  return values;
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
    case DataType::kUint32:
      return function.template operator()<std::uint32_t>();
    case DataType::kUint64:
      return function.template operator()<std::uint64_t>();
    case DataType::kFloat16:
      return function.template operator()<Float16>();
    case DataType::kBfloat16:
      return function.template operator()<Bfloat16>();
  }
  std::abort();
}

}  // namespace ringpipe::testing

#endif  // RINGPIPE_TESTS_REFERENCE_H_
