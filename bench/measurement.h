// One series of calls: a collective of one size, type and operation, out of
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
#include "engine/call.h"
#include "reduction/data_type.h"

namespace ringpipe {

// (target, source, bytes); it has been done when it returns.
using CopyBytes = std::function<Status(void*, const void*, std::size_t)>;

struct SeriesPlan {
  Collective collective = Collective::kAllReduce;
  int root = 0;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::size_t count = 0;  // elements, as in Call
  // The first of `rotate` buffers each, of which one begins `stride` bytes
  // after the other; each call takes the next. They hold the whole message
  // each. With `in_place` only `receive` is used, for both, on ranks that have
  // both.
  void* send = nullptr;
  void* receive = nullptr;
  int rotate = 1;
  std::size_t stride = 0;
  // Copies between the buffers and memory of the host, in both directions,
  // where the host cannot use the buffers itself; else empty.
  CopyBytes copy;
  bool in_place = false;
  std::optional<int> iterations;  // nullopt: as options.h says
  int warmups = 1;
  int checks = 1;
  // Calls, and their times, include writing the input before the call (the
  // same values again) and reading the output after it. Not with `copy`.
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
