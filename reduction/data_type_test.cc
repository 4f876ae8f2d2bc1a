#include "reduction/data_type.h"

#include <optional>
#include <set>
#include <string_view>

#include "gtest/gtest.h"

namespace ringpipe {
namespace {

TEST(DataTypeTest, EveryTypeHasItsSize) {
  EXPECT_EQ(SizeOf(DataType::kFloat32), 4u);
  EXPECT_EQ(SizeOf(DataType::kFloat64), 8u);
  EXPECT_EQ(SizeOf(DataType::kInt32), 4u);
  EXPECT_EQ(SizeOf(DataType::kInt64), 8u);
  EXPECT_EQ(SizeOf(DataType::kInt8), 1u);
  EXPECT_EQ(SizeOf(DataType::kUint8), 1u);
  EXPECT_EQ(SizeOf(DataType::kUint32), 4u);
  EXPECT_EQ(SizeOf(DataType::kUint64), 8u);
  EXPECT_EQ(SizeOf(DataType::kFloat16), 2u);
  EXPECT_EQ(SizeOf(DataType::kBfloat16), 2u);
}

TEST(DataTypeTest, EveryNameIsDistinctAndParsesBack) {
  std::set<std::string_view> names;
  for (const DataType type : kDataTypes) {
    EXPECT_TRUE(names.insert(Name(type)).second) << Name(type);
    EXPECT_EQ(ParseDataType(Name(type)), type) << Name(type);
  }
  for (const ReduceOp op : kReduceOps) {
    EXPECT_TRUE(names.insert(Name(op)).second) << Name(op);
    EXPECT_EQ(ParseReduceOp(Name(op)), op) << Name(op);
  }
  EXPECT_FALSE(names.contains("unknown"));
}

TEST(DataTypeTest, NcclTestsNamesParse) {
  EXPECT_EQ(ParseDataType("float"), DataType::kFloat32);
  EXPECT_EQ(ParseDataType("double"), DataType::kFloat64);
  EXPECT_EQ(ParseDataType("half"), DataType::kFloat16);
  EXPECT_EQ(ParseReduceOp("avg"), ReduceOp::kAverage);
}

TEST(DataTypeTest, OtherNamesDoNotParse) {
  for (const char* name : {"", "Float", "float3", "float320", "halff", "all"}) {
    EXPECT_EQ(ParseDataType(name), std::nullopt) << name;
    EXPECT_EQ(ParseReduceOp(name), std::nullopt) << name;
  }
}

TEST(DataTypeTest, ATypeThatNobodyHasSetIsNone) {
  EXPECT_EQ(SizeOf(DataType{}), 0u);
  EXPECT_EQ(Name(DataType{}), "unknown");
}

TEST(DataTypeTest, ValuesOutsideTheEnumerationAreUnknown) {
  for (const int value : {-1, 11, 1 << 30}) {
    EXPECT_EQ(SizeOf(static_cast<DataType>(value)), 0u) << value;
    EXPECT_EQ(Name(static_cast<DataType>(value)), "unknown") << value;
    EXPECT_EQ(Name(static_cast<ReduceOp>(value)), "unknown") << value;
  }
}

}  // namespace
}  // namespace ringpipe
