#include "bench/table.h"

#include <gtest/gtest.h>

#include <cstring>

namespace ringpipe {
namespace {

TableRow Row() {
  TableRow row;
  row.bytes = 256 << 20;
  row.count = 64 << 20;
  row.ranks = 8;
  row.out_of_place.time_us = 515100.4;
  row.out_of_place.first_us = 812345.6;
  row.out_of_place.summary =
      Summarize({500100, 510200, 515000, 515100, 515200, 520300, 530900});
  row.out_of_place.wrong = 0;
  row.in_place.time_us = 9393.84;
  row.in_place.first_us = 1000.4;
  row.in_place.summary = Summarize({120, 125.5, 130.125});
  row.in_place.wrong = 12;
  return row;
}

// As nccl-tests prints it, column for column.
TEST(Table, HeadingsStandAboveTheirColumns) {
  const std::string header = FormatTableHeader();
  const std::string row = FormatTableRow(Row());
  const std::size_t names = header.find("#       size");
  const auto end_of = [&](const char* name, std::size_t from) {
    return header.find(name, names + from) - names + std::strlen(name);
  };
  // Columns are aligned to the right: each value ends where its heading does.
  EXPECT_EQ(end_of("size", 0), 12u);
  EXPECT_EQ(end_of("count", 0), row.find("67108864") + 8);
  EXPECT_EQ(end_of("type", 0), row.find("float") + 5);
  EXPECT_EQ(end_of("redop", 0), row.find("sum") + 3);
  EXPECT_EQ(end_of("root", 0), row.find("-1") + 2);
  EXPECT_EQ(end_of("time", 0), row.find("515100") + 6);
  EXPECT_EQ(end_of("algbw", 0), row.find("0.52") + 4);
  EXPECT_EQ(end_of("busbw", 0), row.find("0.91") + 4);
  EXPECT_EQ(end_of("time", 80), row.find("9393.8") + 6);
  EXPECT_EQ(end_of("#wrong", 100), row.find('\n'));
}

TEST(Table, RowHasTheColumnsOfNcclTestsAndTheSummaryBelow) {
  EXPECT_EQ(
      FormatTableRow(Row()),
      "   268435456      67108864     float     sum      -1   515100    0.52   "
      " "
      "0.91      0   9393.8   28.58   50.01     12\n"
      "#   out-of-place median 515100 us (95 % CI 500100 to 530900)  min "
      "500100 "
      " max 530900  n 7  first call 812346 us\n"
      "#   in-place     median 125.5 us (75 % CI 120.0 to 130.1)  min 120.0  "
      "max 130.1  n 3  first call 1000 us\n");
}

TEST(Table, UncheckedIsNotZeroWrong) {
  TableRow row = Row();
  row.out_of_place.wrong.reset();
  EXPECT_NE(FormatTableRow(row).find("0.91    N/A"), std::string::npos);
}

TEST(Table, TypesAndOpsHaveTheNamesOfNcclTests) {
  TableRow row = Row();
  row.type = DataType::kFloat64;
  row.op = ReduceOp::kAverage;
  EXPECT_NE(FormatTableRow(row).find("  double     avg"), std::string::npos);
  row.type = DataType::kInt8;
  row.op = ReduceOp::kProd;
  EXPECT_NE(FormatTableRow(row).find("    int8    prod"), std::string::npos);
}

TEST(Table, FooterSaysWhetherAllWasRight) {
  EXPECT_EQ(FormatTableFooter(0, 0.9125),
            "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 0.9125\n");
  EXPECT_EQ(FormatTableFooter(3, 1).substr(0, 35),
            "# Out of bounds values : 3 FAILED\n#");
}

TEST(Table, BandwidthsAreInDecimalGigabytes) {
  EXPECT_DOUBLE_EQ(AlgorithmBandwidth(1'000'000'000, 1e6), 1.0);
  TableRow row;
  row.bytes = 1'000'000'000;
  row.ranks = 8;
  EXPECT_DOUBLE_EQ(BusBandwidth(row, 1e6), 1.75);
  row.ranks = 1;
  EXPECT_DOUBLE_EQ(BusBandwidth(row, 1e6), 0);
  EXPECT_DOUBLE_EQ(AlgorithmBandwidth(1, 0), 0);
}

// nccl-tests' PERFORMANCE.md.
TEST(Table, EachCollectiveHasItsBusBandwidth) {
  TableRow row;
  row.bytes = 1'000'000'000;
  row.ranks = 4;
  for (const auto& [collective, factor] :
       {std::pair(Collective::kAllReduce, 1.5),
        std::pair(Collective::kReduceScatter, 0.75),
        std::pair(Collective::kAllGather, 0.75),
        std::pair(Collective::kBroadcast, 1.0),
        std::pair(Collective::kReduce, 1.0),
        std::pair(Collective::kGather, 0.75),
        std::pair(Collective::kScatter, 0.75),
        std::pair(Collective::kAllToAll, 0.75)}) {
    row.collective = collective;
    EXPECT_DOUBLE_EQ(BusBandwidth(row, 1e6), factor)
        << CollectiveName(collective);
  }
}

TEST(Table, ARootIsNamedWhereThereIsOneAndSoIsWhatThereIsNot) {
  TableRow row = Row();
  row.collective = Collective::kReduce;
  row.root = 3;
  EXPECT_NE(FormatTableRow(row).find(" sum       3 "), std::string::npos);
  row.collective = Collective::kAllToAll;
  const std::string text = FormatTableRow(row);
  EXPECT_NE(text.find(" none      -1 "), std::string::npos) << text;
  EXPECT_NE(text.find("N/A     N/A     N/A    N/A\n"), std::string::npos)
      << text;
  EXPECT_EQ(text.find("in-place  "), std::string::npos) << text;
}

}  // namespace
}  // namespace ringpipe
