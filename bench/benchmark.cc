#include "bench/benchmark.h"

#include <numeric>

#include "bench/byte_size.h"
#include "bench/progress_bar.h"

namespace ringpipe {
namespace {

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(values.size());
}

Figures FiguresOf(const Series& series, AcrossRanks average) {
  std::vector<double> means;
  for (const auto& samples : series.samples_us) {
    means.push_back(Mean(samples));
  }
  Figures figures;
  figures.time_us = Combine(average, means);
  figures.first_us = Combine(AcrossRanks::kMax, series.first_us);
  figures.summary = Summarize(SlowestRank(series.samples_us));
  figures.wrong = series.wrong;
  return figures;
}

// What a series of calls costs, for the progress bar: its bytes, and what a
// call of none takes, in bytes that take as long.
constexpr double kCallCost = 128 << 10;

double Cost(double bytes) { return bytes + kCallCost; }

// Of one series of every size.
double CostOfAllSizes(const Options& options) {
  if (options.step_factor != 0) {
    double cost = 0;
    for (std::optional<std::uint64_t> bytes = options.min_bytes; bytes;
         bytes = options.NextSize(*bytes)) {
      cost += Cost(static_cast<double>(*bytes));
    }
    return cost;
  }
  // Many sizes at equal distances.
  const auto sizes = static_cast<double>(options.Sizes());
  const double first = static_cast<double>(options.min_bytes);
  const double last =
      first + (sizes - 1) * static_cast<double>(options.step_bytes);
  return sizes * Cost((first + last) / 2);
}

double SeriesOfASize(const Options& options) {
  std::size_t series = 0;
  for (const Collective collective : options.collectives) {
    const CollectiveInfo& info = InfoOf(collective);
    series += (info.in_place ? 2 : 1) * (info.reduces ? options.ops.size() : 1);
  }
  return static_cast<double>(series * options.types.size());
}

class BenchmarkRun {
 public:
  BenchmarkRun(Job& job, const Options& options, const Buffers& buffers,
               const Print& print, BenchmarkResult& result)
      : job_(job),
        options_(options),
        buffers_(buffers),
        print_(print),
        progress_bar_(job.rank() == 0),
        whole_cost_(CostOfAllSizes(options) * SeriesOfASize(options)),
        result_(result) {}

  Status Run() {
    RINGPIPE_RETURN_IF_ERROR(Show(FormatTableHeader()));
    for (const Collective collective : options_.collectives) {
      if (options_.collectives.size() > 1) {
        RINGPIPE_RETURN_IF_ERROR(
            Show("# " + std::string(CollectiveName(collective)) + "\n"));
      }
      RINGPIPE_RETURN_IF_ERROR(MeasureCollective(collective));
    }
    return Show(
        FormatTableFooter(result_.wrong, result_.average_bus_bandwidth));
  }

 private:
  Status Show(const std::string& text) {
    if (job_.rank() != 0) {
      return {};
    }
    progress_bar_.Clear();
    return print_(text);
  }

  // Of one operation where it reduces nothing.
  Status MeasureCollective(Collective collective) {
    const std::size_t ops =
        InfoOf(collective).reduces ? options_.ops.size() : 1;
    for (const DataType type : options_.types) {
      for (std::size_t i = 0; i < ops; ++i) {
        for (std::optional<std::uint64_t> bytes = options_.min_bytes; bytes;
             bytes = options_.NextSize(*bytes)) {
          RINGPIPE_RETURN_IF_ERROR(
              MeasureSize(collective, type, options_.ops[i], *bytes));
        }
      }
    }
    return {};
  }

  Status MeasureSize(Collective collective, DataType type, ReduceOp op,
                     std::uint64_t bytes) {
    MeasuredSize measured;
    TableRow& row = measured.row;
    const std::size_t parts = InfoOf(collective).has_parts ? job_.size() : 1;
    row.collective = collective;
    row.root = options_.root;
    row.count = bytes / SizeOf(type) / parts;
    row.bytes = row.count * SizeOf(type) * parts;
    row.type = type;
    row.op = op;
    row.ranks = job_.size();
    auto out_of_place = MeasureSeries(row, /*in_place=*/false);
    if (!out_of_place.ok()) {
      Keep({row, {}, std::move(timed_us_)});
      return out_of_place.status();
    }
    measured.out_of_place = std::move(out_of_place).value();
    row.out_of_place = Account(row, measured.out_of_place);
    if (InfoOf(collective).in_place) {
      auto in_place = MeasureSeries(row, /*in_place=*/true);
      if (!in_place.ok()) {
        Keep({row, std::move(measured.out_of_place), std::move(timed_us_)});
        return in_place.status();
      }
      measured.in_place = std::move(in_place).value();
      row.in_place = Account(row, measured.in_place);
    }
    const std::string text = FormatTableRow(row);
    if (!options_.json_path.empty()) {
      result_.sizes.push_back(std::move(measured));
    }
    return Show(text);
  }

  void Keep(UnfinishedSize unfinished) {
    if (!options_.json_path.empty()) {
      result_.unfinished = std::move(unfinished);
    }
  }

  Result<Series> MeasureSeries(const TableRow& row, bool in_place) {
    SeriesPlan plan;
    plan.collective = row.collective;
    plan.root = row.root;
    plan.type = row.type;
    plan.op = row.op;
    plan.count = row.count;
    plan.send = buffers_.send;
    plan.receive = buffers_.receive;
    plan.stride = buffers_.stride;
    plan.copy = buffers_.copy;
    plan.rotate = options_.rotate;
    plan.in_place = in_place;
    plan.iterations = options_.iterations;
    plan.warmups = options_.warmups;
    plan.checks = options_.checks;
    plan.touch = options_.touch;
    plan.seed = options_.seed;
    const std::string what =
        (options_.collectives.size() > 1
             ? std::string(CollectiveName(row.collective)) + " of "
             : "") +
        FormatByteSize(row.bytes) + " " + std::string(Name(row.type)) + " " +
        std::string(Name(row.op)) + (in_place ? " in place" : " out of place");
    const double cost = Cost(static_cast<double>(row.bytes));
    return Measure(
        job_, plan,
        [this, &what, cost](double part) {
          progress_bar_.Show((done_cost_ + part * cost) / whole_cost_, what);
        },
        &timed_us_);
  }

  // Adds a series to the totals.
  Figures Account(const TableRow& row, const Series& series) {
    const Figures figures = FiguresOf(series, options_.average);
    result_.wrong += series.wrong.value_or(0);
    bus_bandwidths_ += BusBandwidth(row, figures.time_us);
    done_series_ += 1;
    done_cost_ += Cost(static_cast<double>(row.bytes));
    result_.average_bus_bandwidth = bus_bandwidths_ / done_series_;
    return figures;
  }

  Job& job_;
  const Options& options_;
  const Buffers& buffers_;
  const Print& print_;
  ProgressBar progress_bar_;
  const double whole_cost_;
  double done_cost_ = 0;
  double done_series_ = 0;
  double bus_bandwidths_ = 0;     // sum over the series
  std::vector<double> timed_us_;  // of the running series
  BenchmarkResult& result_;
};

}  // namespace

Status RunBenchmark(Job& job, const Options& options, const Buffers& buffers,
                    const Print& print, BenchmarkResult* result) {
  return BenchmarkRun(job, options, buffers, print, *result).Run();
}

}  // namespace ringpipe
