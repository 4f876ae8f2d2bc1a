#ifndef RINGPIPE_INFO_TEXT_H_
#define RINGPIPE_INFO_TEXT_H_

#include <string>

#include "info/report.h"

namespace ringpipe::info {

// For a person: about a dozen lines a device.
std::string ToText(const Report& report);

}  // namespace ringpipe::info

#endif  // RINGPIPE_INFO_TEXT_H_
