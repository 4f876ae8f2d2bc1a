// What a run measured, as JSON.
#ifndef RINGPIPE_BENCH_JSON_REPORT_H_
#define RINGPIPE_BENCH_JSON_REPORT_H_

#include <string>
#include <vector>

#include "bench/benchmark.h"
#include "bench/options.h"

namespace ringpipe {

// Where a rank runs.
struct RankPlace {
  std::string host;
  int pid = 0;
  std::string device;  // with the reason for its choice
};

// An object with "version", "collective", "parameters", "ranks" (a RankPlace
// each), "sizes" (every sample in "samples_us", [rank][iteration]; "slowest_us"
// is their maximum over ranks, which the summary is of), "wrong",
// "average_bus_bandwidth_gb_per_s" and "bound_by". Ends with a newline.
std::string FormatJsonReport(const std::string& version, const Options& options,
                             const std::vector<RankPlace>& places,
                             const BenchmarkResult& result,
                             const std::string& bound_by);

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_JSON_REPORT_H_
