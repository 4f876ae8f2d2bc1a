#include "bench/json_report.h"

#include "bench/interruption.h"
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
  const bool factor = options.step_factor != 0;
  return {
      {"min_bytes", options.min_bytes},
      {"max_bytes", options.max_bytes},
      {"step_factor", factor ? Json(options.step_factor) : Json(nullptr)},
      {"step_bytes", factor ? Json(nullptr) : Json(options.step_bytes)},
      {"iterations",
       options.iterations ? Json(*options.iterations) : Json(nullptr)},
      {"warmup_iterations", options.warmups},
      {"checks", options.checks},
      {"types", types},
      {"ops", ops},
      {"average", static_cast<int>(options.average)},
      {"blocking", options.blocking},
      {"registered_buffers", static_cast<int>(options.buffers)},
      {"memory", Name(options.memory)},
      {"huge_pages", options.huge_pages},
      {"align", options.align},
      {"rotate", options.rotate},
      {"tensors", options.model},
      {"touch", options.touch},
      {"pin", options.pin},
      {"algorithm", options.algorithm},
      {"root", options.root},
      {"seed", options.seed},
  };
}

Json FormatSeries(const TableRow& row, const Figures& figures,
                  const Series& series) {
  const Summary& summary = figures.summary;
  return {
      {"time_us", figures.time_us},
      {"algbw_gb_per_s", AlgorithmBandwidth(row.bytes, figures.time_us)},
      {"busbw_gb_per_s", BusBandwidth(row, figures.time_us)},
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

Json FormatSize(const MeasuredSize& size) {
  const TableRow& row = size.row;
  return {
      {"collective", CollectiveName(row.collective)},
      {"bytes", row.bytes},
      {"count", row.count},
      {"type", Name(row.type)},
      {"op", Name(row.op)},
      {"out_of_place", FormatSeries(row, row.out_of_place, size.out_of_place)},
      {"in_place", InfoOf(row.collective).in_place
                       ? FormatSeries(row, row.in_place, size.in_place)
                       : Json(nullptr)},
  };
}

Json FormatUnfinished(const std::optional<UnfinishedSize>& unfinished) {
  if (!unfinished) {
    return nullptr;
  }
  const TableRow& row = unfinished->row;
  const auto& out_of_place = unfinished->out_of_place;
  return {
      {"collective", CollectiveName(row.collective)},
      {"bytes", row.bytes},
      {"count", row.count},
      {"type", Name(row.type)},
      {"op", Name(row.op)},
      {"out_of_place", out_of_place
                           ? FormatSeries(row, row.out_of_place, *out_of_place)
                           : Json(nullptr)},
      {"rank_0_samples_us", unfinished->timed_us},
  };
}

Json FormatRanks(const std::vector<RankPlace>& places) {
  Json ranks = Json::array();
  for (const RankPlace& place : places) {
    ranks.push_back(
        {{"host", place.host}, {"pid", place.pid}, {"device", place.device}});
  }
  return ranks;
}

Json FormatStages(const std::map<std::string, StageShare>& shares) {
  Json stages = Json::object();
  for (const auto& [stage, share] : shares) {
    stages[stage] = {{"busy", share.busy}, {"waited", share.wait}};
  }
  return stages;
}

const char* Verdict(const Options& options, const Report& report) {
  if (report.interrupted_by != 0) {
    return "interrupted";
  }
  if (report.result.wrong > 0) {
    return "wrong";
  }
  return options.checks > 0 ? "ok" : "unchecked";
}

}  // namespace

std::string FormatJsonReport(const Options& options, const Report& report) {
  const RunFacts& facts = report.facts;
  const BenchmarkResult& result = report.result;
  Json sizes = Json::array();
  for (const MeasuredSize& size : result.sizes) {
    sizes.push_back(FormatSize(size));
  }
  const Json json = {
      {"schema",
       {{"name", "ringpipe-allreduce"}, {"version", kJsonSchemaVersion}}},
      {"version", facts.version},
      {"date", facts.date},
      {"verdict", Verdict(options, report)},
      {"interrupted_by", report.interrupted_by != 0
                             ? Json(SignalName(report.interrupted_by))
                             : Json(nullptr)},
      {"collective", NameOfAll(options.collectives)},
      {"launcher", facts.launcher},
      {"device", facts.places.empty() ? "" : facts.places.front().device},
      {"processor",
       {{"model", facts.processor.model},
        {"cores", facts.processor.cores},
        {"usable_cores", facts.processor.usable_cores}}},
      {"placement",
       options.placement.empty() ? Json(nullptr) : Json(options.placement)},
      {"environment", facts.environment},
      {"chunking",
       {{"algorithm", facts.chunking.algorithm},
        {"subchunk_bytes", facts.chunking.subchunk_bytes},
        {"depth", facts.chunking.depth},
        {"slots", facts.chunking.slots}}},
      {"parameters", Parameters(options)},
      {"ranks", FormatRanks(facts.places)},
      {"sizes", sizes},
      {"unfinished", FormatUnfinished(result.unfinished)},
      {"wrong", result.wrong},
      {"average_bus_bandwidth_gb_per_s", result.average_bus_bandwidth},
      {"stages", FormatStages(report.stages)},
      {"bound_by", report.bound_by ? Json(*report.bound_by) : Json(nullptr)},
  };
  // Bytes that are no UTF-8, as a host name may have, are replaced: the other
  // choice is an exception.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ringpipe
