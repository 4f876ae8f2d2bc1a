#include "validate/units.h"

#include <charconv>
#include <cmath>
#include <string>
#include <utility>

namespace ringpipe::validate {
namespace {

Status Invalid(std::string_view text, const char* what) {
  return {StatusCode::kInvalidArgument,
          "\"" + std::string(text) + "\" is " + what};
}

// The number at the beginning, and what follows without spaces. NaN: none.
std::pair<double, std::string> Split(std::string_view text) {
  double number = NAN;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number) || number < 0) {
    return {NAN, ""};
  }
  std::string unit;
  for (const char* c = end; c != text.data() + text.size(); ++c) {
    if (*c != ' ') {
      unit += *c;
    }
  }
  return {number, unit};
}

// Takes a prefix off `unit`.
double TakePrefix(std::string& unit) {
  double factor = 1;
  if (!unit.empty()) {
    switch (unit.front()) {
      case 'k':
      case 'K':
        factor = 1e3;
        break;
      case 'M':
        factor = 1e6;
        break;
      case 'G':
        factor = 1e9;
        break;
      case 'T':
        factor = 1e12;
        break;
      default:
        return 1;
    }
    unit.erase(0, 1);
  }
  return factor;
}

}  // namespace

Result<double> ParseRate(std::string_view text) {
  auto [number, unit] = Split(text);
  const double factor = TakePrefix(unit);
  const bool bits = unit == "bit/s" || unit == "b/s" || unit == "bps" ||
                    unit == "bit" || unit == "b/sec";
  const bool bytes = unit == "B/s" || unit == "byte/s" || unit == "B";
  if (std::isnan(number) || number == 0 || (!bits && !bytes)) {
    return Invalid(text,
                   "no rate; write it like 90Gbit/s (bits) or 11GB/s (bytes)");
  }
  return number * factor / (bits ? 8 : 1);
}

Result<double> ParseDuration(std::string_view text) {
  const auto [number, unit] = Split(text);
  const double seconds = unit.empty() || unit == "s"    ? number
                         : unit == "ms"                 ? number / 1e3
                         : unit == "m" || unit == "min" ? number * 60
                         : unit == "h"                  ? number * 3600
                                                        : NAN;
  constexpr double kWeek = 7 * 24 * 3600;
  if (std::isnan(seconds) || seconds > kWeek) {
    return Invalid(text,
                   "no duration; write it like 30s, 10m or 2h (at most a "
                   "week)");
  }
  return seconds;
}

Result<double> ParsePercent(std::string_view text) {
  const auto [number, unit] = Split(text);
  if (std::isnan(number) || number > 90 || (!unit.empty() && unit != "%")) {
    return Invalid(text, "no part; write it in percent, like 10% (0 to 90)");
  }
  return number / 100;
}

}  // namespace ringpipe::validate
