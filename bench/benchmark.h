// The whole run: every type, operation and size, out of place and in place.
#ifndef RINGPIPE_BENCH_BENCHMARK_H_
#define RINGPIPE_BENCH_BENCHMARK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/job.h"
#include "bench/measurement.h"
#include "bench/options.h"
#include "bench/table.h"

namespace ringpipe {

// Memory of this rank's for all sizes: options.max_bytes each.
struct Buffers {
  void* send = nullptr;
  void* receive = nullptr;
};

struct MeasuredSize {
  TableRow row;
  // Every sample; empty where options.json_path is.
  Series out_of_place;
  Series in_place;
};

struct BenchmarkResult {
  std::vector<MeasuredSize> sizes;
  std::uint64_t wrong = 0;
  double average_bus_bandwidth = 0;
  // This rank's time in all calls.
  double in_calls_us = 0;
};

// The same result on every rank but for in_calls_us. Prints the table, row by
// row, through `print` on rank 0.
Result<BenchmarkResult> RunBenchmark(
    Job& job, const Options& options, const Buffers& buffers,
    const std::function<void(const std::string&)>& print);

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_BENCHMARK_H_
