#include "bench/table.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace ringpipe {
namespace {

__attribute__((format(printf, 1, 2))) std::string Format(const char* format,
                                                         ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

// nccl-tests' names, which people's scripts look for.
const char* ShortName(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return "float";
    case DataType::kFloat64:
      return "double";
    case DataType::kFloat16:
      return "half";
    default:
      return Name(type).data();
  }
}

const char* ShortName(ReduceOp op) {
  return op == ReduceOp::kAverage ? "avg" : Name(op).data();
}

// Microseconds in 7 columns, with as many decimals as fit well.
std::string FormatTime(double us) {
  return Format("%7.*f", us >= 9999.95 ? 0 : us >= 99.995 ? 1 : 2, us);
}

std::string FormatFigures(const TableRow& row, const Figures& figures) {
  const std::string wrong =
      figures.wrong ? std::to_string(*figures.wrong) : "N/A";
  return Format("  %7s  %6.2f  %6.2f  %5s", FormatTime(figures.time_us).c_str(),
                AlgorithmBandwidth(row.bytes, figures.time_us),
                BusBandwidth(row, figures.time_us), wrong.c_str());
}

// Microseconds with four significant digits or all before the point.
std::string FormatDetail(double us) {
  return Format("%.*f", us >= 1000 ? 0 : us >= 100 ? 1 : 2, us);
}

// " (95 % CI 1.20 to 1.25)"; nothing where there is no interval.
std::string FormatInterval(const Summary& summary) {
  if (summary.samples < 2) {
    return "";
  }
  // Rounded down: no more confidence than there is. More than 95 is called 95.
  const double percent =
      std::floor(100 * std::min(summary.confidence, 0.95) + 1e-9);
  return Format(" (%.0f %% CI %s to %s)", percent,
                FormatDetail(summary.median_low).c_str(),
                FormatDetail(summary.median_high).c_str());
}

std::string FormatSummary(const char* where, const Figures& figures) {
  const Summary& summary = figures.summary;
  return Format(
      "#   %-12s median %s us%s  min %s  max %s  n %zu  "
      "first call %s us\n",
      where, FormatDetail(summary.median).c_str(),
      FormatInterval(summary).c_str(), FormatDetail(summary.min).c_str(),
      FormatDetail(summary.max).c_str(), summary.samples,
      FormatDetail(figures.first_us).c_str());
}

}  // namespace

double AlgorithmBandwidth(std::uint64_t bytes, double time_us) {
  return time_us > 0 ? static_cast<double>(bytes) / time_us * 1e-3 : 0;
}

double BusBandwidth(const TableRow& row, double time_us) {
  return AlgorithmBandwidth(row.bytes, time_us) *
         InfoOf(row.collective).BusFactor(row.ranks);
}

std::string FormatTableHeader() {
  return "#\n"
         "#                                                              "
         "out-of-place                       in-place          \n"
         "#       size         count      type   redop    root     time   "
         "algbw   busbw #wrong     time   algbw   busbw #wrong\n"
         "#        (B)    (elements)                               (us)  "
         "(GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       \n";
}

std::string FormatTableRow(const TableRow& row) {
  const CollectiveInfo& info = InfoOf(row.collective);
  const std::string not_in_place =
      Format("  %7s  %6s  %6s  %5s", "N/A", "N/A", "N/A", "N/A");
  // As nccl-tests prints it.
  const char* const op = info.reduces ? ShortName(row.op) : "none";
  return Format("%12llu  %12llu  %8s  %6s  %6d",
                static_cast<unsigned long long>(row.bytes),
                static_cast<unsigned long long>(row.count), ShortName(row.type),
                op, info.is_rooted() ? row.root : -1) +
         FormatFigures(row, row.out_of_place) +
         (info.in_place ? FormatFigures(row, row.in_place) : not_in_place) +
         "\n" + FormatSummary("out-of-place", row.out_of_place) +
         (info.in_place ? FormatSummary("in-place", row.in_place) : "");
}

std::string FormatTableFooter(std::uint64_t wrong,
                              double average_bus_bandwidth) {
  return Format("# Out of bounds values : %llu %s\n",
                static_cast<unsigned long long>(wrong),
                wrong == 0 ? "OK" : "FAILED") +
         Format("# Avg bus bandwidth    : %g\n", average_bus_bandwidth);
}

}  // namespace ringpipe
