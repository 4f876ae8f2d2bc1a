#include "reduction/data_type.h"

#include <iterator>

namespace ringpipe {
namespace {

struct DataTypeRow {
  DataType type;
  std::string_view name;
  std::string_view nccl_tests_name;
};

constexpr DataTypeRow kDataTypeRows[] = {
    {DataType::kFloat32, "float32", "float"},
    {DataType::kFloat64, "float64", "double"},
    {DataType::kInt32, "int32", "int32"},
    {DataType::kInt64, "int64", "int64"},
    {DataType::kInt8, "int8", "int8"},
    {DataType::kUint8, "uint8", "uint8"},
    {DataType::kUint32, "uint32", "uint32"},
    {DataType::kUint64, "uint64", "uint64"},
    {DataType::kFloat16, "float16", "half"},
    {DataType::kBfloat16, "bfloat16", "bfloat16"},
};

struct ReduceOpRow {
  ReduceOp op;
  std::string_view name;
  std::string_view nccl_tests_name;
};

constexpr ReduceOpRow kReduceOpRows[] = {
    {ReduceOp::kSum, "sum", "sum"},         {ReduceOp::kMin, "min", "min"},
    {ReduceOp::kMax, "max", "max"},         {ReduceOp::kProd, "prod", "prod"},
    {ReduceOp::kAverage, "average", "avg"},
};

static_assert(std::size(kDataTypeRows) == kDataTypes.size());
static_assert(std::size(kReduceOpRows) == kReduceOps.size());

// nullptr for a value outside the enumeration.
const DataTypeRow* FindRow(DataType type) {
  for (const DataTypeRow& row : kDataTypeRows) {
    if (row.type == type) {
      return &row;
    }
  }
  return nullptr;
}

}  // namespace

std::string_view Name(DataType type) {
  const DataTypeRow* row = FindRow(type);
  return row == nullptr ? "unknown" : row->name;
}

std::string_view Name(ReduceOp op) {
  for (const ReduceOpRow& row : kReduceOpRows) {
    if (row.op == op) {
      return row.name;
    }
  }
  return "unknown";
}

std::optional<DataType> ParseDataType(std::string_view name) {
  for (const DataTypeRow& row : kDataTypeRows) {
    if (row.name == name || row.nccl_tests_name == name) {
      return row.type;
    }
  }
  return std::nullopt;
}

std::optional<ReduceOp> ParseReduceOp(std::string_view name) {
  for (const ReduceOpRow& row : kReduceOpRows) {
    if (row.name == name || row.nccl_tests_name == name) {
      return row.op;
    }
  }
  return std::nullopt;
}

}  // namespace ringpipe
