#include "bench/byte_size.h"

#include <charconv>
#include <cmath>
#include <cstdio>

namespace ringpipe {
namespace {

constexpr std::string_view kUnits = "KMGT";

Status Unparsable(std::string_view text, const std::string& why) {
  return {StatusCode::kInvalidArgument,
          "\"" + std::string(text) + "\" is not a size: " + why +
              "; allowed is a number of bytes, with K, M, G or T for powers "
              "of 1024, such as 1000, 64K or 256M"};
}

// The power of 1024 that `unit` stands for, or -1.
int Exponent(char unit) {
  const char upper = unit >= 'a' && unit <= 'z' ? unit - 'a' + 'A' : unit;
  const auto position = kUnits.find(upper);
  return position == kUnits.npos ? -1 : static_cast<int>(position) + 1;
}

}  // namespace

Result<std::uint64_t> ParseByteSize(std::string_view text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] =
      std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(number)) {
    return Unparsable(text, "it does not begin with a number");
  }
  if (std::signbit(number)) {
    return Unparsable(text, "it is negative");
  }
  int exponent = 0;
  if (rest != end) {
    exponent = Exponent(*rest);
    if (exponent < 0) {
      return Unparsable(text,
                        "unknown unit \"" + std::string(rest, end) + "\"");
    }
    if (rest + 1 != end) {
      return Unparsable(text, "something follows the unit");
    }
  }
  const double bytes = std::ldexp(number, 10 * exponent);
  if (bytes >= 0x1p62) {
    return Unparsable(text, "it is larger than any memory");
  }
  if (bytes != std::floor(bytes)) {
    return Unparsable(text, "it is no whole number of bytes");
  }
  return static_cast<std::uint64_t>(bytes);
}

std::string FormatByteSize(std::uint64_t bytes) {
  int exponent = 0;
  while (exponent < static_cast<int>(kUnits.size()) &&
         (bytes >> (10 * (exponent + 1))) > 0) {
    ++exponent;
  }
  if (exponent == 0) {
    return std::to_string(bytes);
  }
  const std::uint64_t unit = std::uint64_t{1} << (10 * exponent);
  const char name = kUnits[exponent - 1];
  if (bytes % unit == 0) {
    return std::to_string(bytes / unit) + name;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.2f%c",
                static_cast<double>(bytes) / static_cast<double>(unit), name);
  return text;
}

}  // namespace ringpipe
