// The text that bench/allreduce prints, in the layout of nccl-tests.
#ifndef RINGPIPE_BENCH_TABLE_H_
#define RINGPIPE_BENCH_TABLE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "bench/statistics.h"
#include "pipeline/collective.h"
#include "reduction/data_type.h"

namespace ringpipe {

// What was measured at one size, out of place or in place.
struct Figures {
  double time_us = 0;  // mean time of a call, as -a wants it
  double first_us = 0;
  Summary summary;                     // in microseconds
  std::optional<std::uint64_t> wrong;  // nullopt: not checked
};

struct TableRow {
  Collective collective = Collective::kAllReduce;
  int root = 0;
  std::uint64_t bytes = 0;  // of the whole message
  std::uint64_t count = 0;  // as in Call
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int ranks = 1;
  Figures out_of_place;
  Figures in_place;  // where the collective has that
};

// GB/s, GB = 1e9: bytes / time; 0 for no time.
double AlgorithmBandwidth(std::uint64_t bytes, double time_us);
// That times what the collective moves over each rank's link, as a part of the
// message (2 (n-1)/n for an allreduce of n ranks): nccl-tests' bus bandwidth.
double BusBandwidth(const TableRow& row, double time_us);

// Each ends with a newline.
std::string FormatTableHeader();
// The row, and below it a line each for out of place and in place, with '#',
// that has the median and what else nccl-tests does not print.
std::string FormatTableRow(const TableRow& row);
// `average_bus_bandwidth` over all rows, out of place and in place.
std::string FormatTableFooter(std::uint64_t wrong,
                              double average_bus_bandwidth);

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_TABLE_H_
