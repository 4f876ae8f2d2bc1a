#ifndef RINGPIPE_INFO_JSON_H_
#define RINGPIPE_INFO_JSON_H_

#include <string>

#include "info/report.h"

namespace ringpipe::info {

// For a program: one JSON object, indented. Byte counts are numbers; a limit
// that does not exist is null. CUDA's version is 12040 for 12.4.
std::string ToJson(const Report& report);

}  // namespace ringpipe::info

#endif  // RINGPIPE_INFO_JSON_H_
