// What a validation found, as one HTML file.
#ifndef RINGPIPE_VALIDATE_HTML_REPORT_H_
#define RINGPIPE_VALIDATE_HTML_REPORT_H_

#include <string>

#include "validate/analysis.h"
#include "validate/measurements.h"

namespace ringpipe::validate {

// Loads nothing from elsewhere. All that it says it says without its script,
// which adds the value under the pointer and enlarges by a click; colours go
// from orange to blue, and what they mean is also written.
std::string FormatHtmlReport(const Measurements& measurements,
                             const Analysis& analysis);

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_HTML_REPORT_H_
