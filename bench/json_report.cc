#include "bench/json_report.h"

#include "nlohmann/json.hpp"

namespace ringpipe {
namespace {

// Keeps keys in the order of this file.
using Json = nlohmann::ordered_json;

Json Parameters(const Options& options) {
  Json types = Json::array();
  for (const DataType type : options.types) {
    types.push_back(Name(type));
  }
  Json ops = Json::array();
  for (const ReduceOp op : options.ops) {
    ops.push_back(Name(op));
  }
  Json json = {{"min_bytes", options.min_bytes},
               {"max_bytes", options.max_bytes}};
  if (options.step_factor != 0) {
    json["step_factor"] = options.step_factor;
  } else {
    json["step_bytes"] = options.step_bytes;
  }
  json["iterations"] =
      options.iterations ? Json(*options.iterations) : Json(nullptr);
  json["warmup_iterations"] = options.warmups;
  json["checks"] = options.checks;
  json["types"] = types;
  json["ops"] = ops;
  json["average"] = static_cast<int>(options.average);
  json["blocking"] = options.blocking;
  json["registered_buffers"] = static_cast<int>(options.buffers);
  json["seed"] = options.seed;
  return json;
}

Json FormatSeries(const TableRow& row, const Figures& figures,
                  const Series& series) {
  const Summary& summary = figures.summary;
  return {
      {"time_us", figures.time_us},
      {"algbw_gb_per_s", AlgorithmBandwidth(row.bytes, figures.time_us)},
      {"busbw_gb_per_s", BusBandwidth(row.bytes, figures.time_us, row.ranks)},
      {"wrong", figures.wrong ? Json(*figures.wrong) : Json(nullptr)},
      {"first_call_us", figures.first_us},
      {"summary_us",
       {{"samples", summary.samples},
        {"median", summary.median},
        {"median_low", summary.median_low},
        {"median_high", summary.median_high},
        {"confidence", summary.confidence},
        {"min", summary.min},
        {"max", summary.max},
        {"mean", summary.mean}}},
      {"slowest_us", SlowestRank(series.samples_us)},
      {"samples_us", series.samples_us},
      {"first_calls_us", series.first_us},
  };
}

}  // namespace

std::string FormatJsonReport(const std::string& version, const Options& options,
                             const std::vector<RankPlace>& places,
                             const BenchmarkResult& result,
                             const std::string& bound_by) {
  Json ranks = Json::array();
  for (const RankPlace& place : places) {
    ranks.push_back(
        {{"host", place.host}, {"pid", place.pid}, {"device", place.device}});
  }
  Json sizes = Json::array();
  for (const MeasuredSize& size : result.sizes) {
    const TableRow& row = size.row;
    sizes.push_back(
        {{"bytes", row.bytes},
         {"count", row.count},
         {"type", Name(row.type)},
         {"op", Name(row.op)},
         {"out_of_place",
          FormatSeries(row, row.out_of_place, size.out_of_place)},
         {"in_place", FormatSeries(row, row.in_place, size.in_place)}});
  }
  const Json json = {
      {"version", version},
      {"collective", "allreduce"},
      {"parameters", Parameters(options)},
      {"ranks", ranks},
      {"sizes", sizes},
      {"wrong", result.wrong},
      {"average_bus_bandwidth_gb_per_s", result.average_bus_bandwidth},
      {"bound_by", bound_by},
  };
  // Bytes that are no UTF-8, as a host name may have, are replaced: the other
  // choice is an exception.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ringpipe
