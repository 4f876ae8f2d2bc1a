// One series of calls: an allreduce of one size, type and operation, out of
// place or in place.
#ifndef RINGPIPE_BENCH_MEASUREMENT_H_
#define RINGPIPE_BENCH_MEASUREMENT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/status.h"
#include "bench/job.h"
#include "reduction/data_type.h"

namespace ringpipe {

struct SeriesPlan {
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::size_t count = 0;  // elements
  // `send` and `receive` hold `count` elements each; with `in_place` only
  // `receive` is used, for both.
  void* send = nullptr;
  void* receive = nullptr;
  bool in_place = false;
  std::optional<int> iterations;  // nullopt: as options.h says
  int warmups = 1;
  int checks = 1;
  // Calls, and their times, include writing the input before the allreduce (the
  // same values again) and reading the output after it.
  bool touch = false;
  std::uint64_t seed = 1;
};

struct Series {
  // Of every rank: times of the timed calls, [rank][iteration], in
  // microseconds, and the time of the very first call.
  std::vector<std::vector<double>> samples_us;
  std::vector<double> first_us;
  // Over all ranks and all checked calls; nullopt where none was checked.
  std::optional<std::uint64_t> wrong;
};

// Called between calls with the part of the series that is done, 0 to 1.
using SeriesProgress = std::function<void(double part)>;

// The order: first call, warm-ups, timed calls, checked calls. A barrier
// before each, so that calls do not overlap and samples are independent.
// Times are exchanged after the last timed call. `timed_us` gets this rank's
// times of the timed calls, one by one, so that they are there also where an
// error ends the series.
Result<Series> Measure(Job& job, const SeriesPlan& plan,
                       const SeriesProgress& progress,
                       std::vector<double>* timed_us);

// The slowest rank's time of each call.
std::vector<double> SlowestRank(
    const std::vector<std::vector<double>>& samples_us);

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_MEASUREMENT_H_
