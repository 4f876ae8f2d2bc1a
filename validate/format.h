// Figures as people read them.
#ifndef RINGPIPE_VALIDATE_FORMAT_H_
#define RINGPIPE_VALIDATE_FORMAT_H_

#include <string>

namespace ringpipe::validate {

// "11.8 GB/s", "117 MB/s", "950 kB/s" (powers of 1000); "not measured" for NaN.
std::string FormatRate(double bytes_per_s);
// "3.2 µs", "1.25 ms", "12 s", "4 min 10 s".
std::string FormatTime(double seconds);
// A part of one: "48 %", "2.5 %".
std::string FormatPercent(double part);
// "1 link", "15 links".
std::string Count(std::size_t number, const std::string& noun);
// "4,096".
std::string WithCommas(unsigned long long number);

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_FORMAT_H_
