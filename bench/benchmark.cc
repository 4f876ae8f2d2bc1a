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

class BenchmarkRun {
 public:
  BenchmarkRun(Job& job, const Options& options, const Buffers& buffers,
               const std::function<void(const std::string&)>& print)
      : job_(job),
        options_(options),
        buffers_(buffers),
        print_(print),
        progress_bar_(job.rank() == 0),
        all_series_(2.0 * static_cast<double>(options.Sizes()) *
                    static_cast<double>(options.types.size()) *
                    static_cast<double>(options.ops.size())) {}

  Result<BenchmarkResult> Run() {
    Print(FormatTableHeader());
    for (const DataType type : options_.types) {
      for (const ReduceOp op : options_.ops) {
        for (std::optional<std::uint64_t> bytes = options_.min_bytes; bytes;
             bytes = options_.NextSize(*bytes)) {
          RINGPIPE_RETURN_IF_ERROR(MeasureSize(type, op, *bytes));
        }
      }
    }
    if (done_series_ > 0) {
      result_.average_bus_bandwidth = bus_bandwidths_ / done_series_;
    }
    Print(FormatTableFooter(result_.wrong, result_.average_bus_bandwidth));
    return std::move(result_);
  }

 private:
  void Print(const std::string& text) {
    if (job_.rank() == 0) {
      progress_bar_.Clear();
      print_(text);
    }
  }

  Status MeasureSize(DataType type, ReduceOp op, std::uint64_t bytes) {
    MeasuredSize measured;
    TableRow& row = measured.row;
    row.count = bytes / SizeOf(type);
    row.bytes = row.count * SizeOf(type);
    row.type = type;
    row.op = op;
    row.ranks = job_.size();
    RINGPIPE_ASSIGN_OR_RETURN(measured.out_of_place,
                              MeasureSeries(row, /*in_place=*/false));
    row.out_of_place = Account(row, measured.out_of_place);
    RINGPIPE_ASSIGN_OR_RETURN(measured.in_place,
                              MeasureSeries(row, /*in_place=*/true));
    row.in_place = Account(row, measured.in_place);
    Print(FormatTableRow(row));
    if (!options_.json_path.empty()) {
      result_.sizes.push_back(std::move(measured));
    }
    return {};
  }

  Result<Series> MeasureSeries(const TableRow& row, bool in_place) {
    SeriesPlan plan;
    plan.type = row.type;
    plan.op = row.op;
    plan.count = row.count;
    plan.send = buffers_.send;
    plan.receive = buffers_.receive;
    plan.in_place = in_place;
    plan.iterations = options_.iterations;
    plan.warmups = options_.warmups;
    plan.checks = options_.checks;
    plan.seed = options_.seed;
    const std::string what =
        FormatByteSize(row.bytes) + " " + std::string(Name(row.type)) + " " +
        std::string(Name(row.op)) + (in_place ? " in place" : " out of place");
    return Measure(job_, plan, [this, &what](double part) {
      progress_bar_.Show((done_series_ + part) / all_series_, what);
    });
  }

  // Adds a series to the totals.
  Figures Account(const TableRow& row, const Series& series) {
    const Figures figures = FiguresOf(series, options_.average);
    result_.wrong += series.wrong.value_or(0);
    result_.in_calls_us += series.in_calls_us;
    bus_bandwidths_ += BusBandwidth(row.bytes, figures.time_us, row.ranks);
    done_series_ += 1;
    return figures;
  }

  Job& job_;
  const Options& options_;
  const Buffers& buffers_;
  const std::function<void(const std::string&)>& print_;
  ProgressBar progress_bar_;
  const double all_series_;
  double done_series_ = 0;
  double bus_bandwidths_ = 0;  // sum over the series
  BenchmarkResult result_;
};

}  // namespace

Result<BenchmarkResult> RunBenchmark(
    Job& job, const Options& options, const Buffers& buffers,
    const std::function<void(const std::string&)>& print) {
  return BenchmarkRun(job, options, buffers, print).Run();
}

}  // namespace ringpipe
