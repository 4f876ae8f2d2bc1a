#include "validate/format.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace ringpipe::validate {
namespace {

// Three digits that count: "1.25", "11.8", "117".
std::string ThreeDigits(double value) {
  const int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

}  // namespace

std::string FormatRate(double bytes_per_s) {
  if (std::isnan(bytes_per_s)) {
    return "not measured";
  }
  if (bytes_per_s >= 0.9995e9) {
    return ThreeDigits(bytes_per_s / 1e9) + " GB/s";
  }
  return bytes_per_s >= 0.9995e6 ? ThreeDigits(bytes_per_s / 1e6) + " MB/s"
                                 : ThreeDigits(bytes_per_s / 1e3) + " kB/s";
}

std::string FormatTime(double seconds) {
  if (std::isnan(seconds)) {
    return "not measured";
  }
  if (seconds < 0.9995e-3) {
    return ThreeDigits(seconds * 1e6) + " µs";
  }
  if (seconds < 0.9995) {
    return ThreeDigits(seconds * 1e3) + " ms";
  }
  if (seconds < 60) {
    return ThreeDigits(seconds) + " s";
  }
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole < 3600) {
    return std::to_string(whole / 60) + " min " + std::to_string(whole % 60) +
           " s";
  }
  return std::to_string(whole / 3600) + " h " +
         std::to_string(whole % 3600 / 60) + " min";
}

std::string FormatPercent(double part) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.*f %%",
                std::fabs(part) < 0.0995 ? 1 : 0, part * 100);
  return text.data();
}

std::string Count(std::size_t number, const std::string& noun) {
  return WithCommas(number) + " " + noun + (number == 1 ? "" : "s");
}

std::string WithCommas(unsigned long long number) {
  std::string digits = std::to_string(number);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

}  // namespace ringpipe::validate
