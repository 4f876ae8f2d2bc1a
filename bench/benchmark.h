// The whole run: every collective, type, operation and size, out of place and
// in place.
#ifndef RINGPIPE_BENCH_BENCHMARK_H_
#define RINGPIPE_BENCH_BENCHMARK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/job.h"
#include "bench/measurement.h"
#include "bench/options.h"
#include "bench/table.h"

namespace ringpipe {

// Memory of this rank's for all sizes: options.rotate buffers of
// options.max_bytes each, of which one begins `stride` bytes after the other.
struct Buffers {
  void* send = nullptr;
  void* receive = nullptr;
  std::size_t stride = 0;
  CopyBytes copy = {};  // SeriesPlan's
};

struct MeasuredSize {
  TableRow row;
  // Every sample; empty where options.json_path is.
  Series out_of_place;
  Series in_place;
};

// The size at which a run ended early.
struct UnfinishedSize {
  TableRow row;  // row.out_of_place where that series is whole
  // The whole series out of place; nullopt where the run ended in it.
  std::optional<Series> out_of_place;
  // This rank's timed calls of the series in which the run ended.
  std::vector<double> timed_us;
};

struct BenchmarkResult {
  std::vector<MeasuredSize> sizes;
  std::optional<UnfinishedSize> unfinished;
  std::uint64_t wrong = 0;
  double average_bus_bandwidth = 0;
};

// Prints text; an error ends the run.
using Print = std::function<Status(const std::string&)>;

// The same result on every rank but for what is unfinished. Prints the table,
// row by row, through `print` on rank 0. After an error `*result` has what was
// measured before it.
Status RunBenchmark(Job& job, const Options& options, const Buffers& buffers,
                    const Print& print, BenchmarkResult* result);

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_BENCHMARK_H_
