// Figures as people write them on a command line.
#ifndef RINGPIPE_VALIDATE_UNITS_H_
#define RINGPIPE_VALIDATE_UNITS_H_

#include <string_view>

#include "base/status.h"

namespace ringpipe::validate {

// Each is kInvalidArgument, with an example, for anything else.

// "90Gbit/s", "11.5 GB/s", "100MB/s": bytes a second; powers of 1000.
Result<double> ParseRate(std::string_view text);
// "10m", "30s", "1h", "500ms", "90" (seconds).
Result<double> ParseDuration(std::string_view text);
// "10%", "10" (percent), from 0 to 90, as a part of one.
Result<double> ParsePercent(std::string_view text);

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_UNITS_H_
